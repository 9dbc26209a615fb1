"""Background work of the broker: flushes, retention, compaction, scrubbing, moves."""
