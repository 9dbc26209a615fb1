"""Verifying whole log dirs offline: `klamm verify`. Nothing is written, so a copy or a read-only medium will do.

`run` plans the work, spreads segments over worker processes and tells what was found; `segment_check` is the work on
one segment (every batch, its indexes, its aborted transactions, its producers), `partition_check` what only a whole
partition tells (order, epochs, checkpoints), `directory_check` what is beside the partitions.

A *problem* is something that a broker does not leave behind: exit code 1. A *note* is worth knowing and does no harm: a
start makes it good, or compaction has made it so.
"""
