"""The command line: one parser for all commands, which the rooms register as rows.

`program` has the parser and handles the end of a command. Commands that talk to any cluster belong here: they need
`client` and `protocol`, and neither the broker nor the pipeline.
"""
