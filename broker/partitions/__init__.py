"""The partitions of this broker, and where their logs are."""
