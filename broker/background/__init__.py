"""What the broker does by itself: flushes, retention, compaction, scrubbing, moves."""
