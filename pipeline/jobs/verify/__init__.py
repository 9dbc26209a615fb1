"""The check that a loaded table has exactly the records of the log: `commit_history` reads commits, `compare` rows."""
