"""The data pipeline: topics as tables, on Spark through PySpark. Needs the extra `klamm[pipeline]`.

`cli` is the command `klamm-pipeline`; each of its subcommands is a module in `commands/` that reads options, makes a
plan, and runs a job. Jobs stand on four rooms: `cluster` (what topics, partitions and offsets a Kafka cluster has, over
the wire), `segments` (the same for a log directory, without a broker), `source` (Spark's data source `klamm` over
both), and `table` (Delta tables, and the offsets that are committed with their data). Records become columns in
`klamm.protocol.records.columnar`, and Arrow in `arrow`.

Nothing here imports the broker.
"""
