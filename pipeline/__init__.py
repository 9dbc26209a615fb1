"""The data pipeline: topics as tables, on Spark through PySpark. Needs the extra `klamm[pipeline]`.

`__main__` is the command `klamm-pipeline`. Each subcommand is a module in `commands/` that reads options, makes a plan
and runs a job. The rooms: `kafka` is a client for many topics at once (reading, producing, groups, transactions),
`segments` reads the same records from a log directory without a broker, `spark` holds the session, its tasks and the
data source `klamm` over both, `table` is Delta tables and the offsets committed with their data, `values` parses keys
and values, and `jobs` holds the work of each command. Records become columns in `klamm.protocol.records.columnar`, and
Arrow in `arrow`.

Nothing here imports the broker.
"""
