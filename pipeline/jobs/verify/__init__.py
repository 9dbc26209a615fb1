"""Whether a loaded table has exactly the records of the log: `story` is what its commits say, `compare` looks."""
