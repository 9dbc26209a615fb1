"""Topics into a Delta table: `plan` decides which offsets, `task` writes their files, `job` commits them."""
