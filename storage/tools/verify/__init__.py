"""Verify whole log directories offline: `klamm verify`. Nothing is written, so a copy or a read-only medium will do.

`run` plans the work, distributes segments over worker processes and reports the findings. `segment_check` checks one
segment (every batch, its indexes, its aborted transactions, its producers), `partition_check` a whole partition (order,
epochs, checkpoints), `directory_check` the files beside the partitions.

A *problem* is a state that a broker never leaves: exit code 1. A *note* is worth knowing and does no harm: a start
repairs it, or compaction has caused it.
"""
