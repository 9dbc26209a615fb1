"""A table with the latest value of each key: `source` reads records, `task` merges them, `job` commits the result."""
