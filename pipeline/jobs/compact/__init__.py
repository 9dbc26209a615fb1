"""A table of the latest value per key, kept up to date: `source` is what is new, `task` merges it, `job` commits it."""
