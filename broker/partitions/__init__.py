"""The partitions of this broker, and the locations of their logs."""
