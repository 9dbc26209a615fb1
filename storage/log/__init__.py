"""The log of a partition: its segments, indexes, producers, epochs, and how batches enter and leave it."""
