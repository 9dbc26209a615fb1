"""The scrubber: verification of stored data in the background."""
