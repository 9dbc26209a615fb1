"""Whether a loaded table has exactly the records of the log: `commit_history` is what its commits say, `compare`
looks."""
