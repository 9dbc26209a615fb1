"""The mirror: topics of one cluster copied to another by `klamm-pipeline mirror`.

`rules` decides the name of each topic at the target, and the configs to copy. `plan` lists the work of a round: topics
to create, partitions to add, configs to change, and offset ranges to copy. `copying` copies one source partition, in
transactions that carry the next source offset (`progress`); it runs in Spark's tasks. `batches` decides which batches
are copied untouched, and makes new ones of the rest. `syncs` and `checkpoints` write the offsets that consumers need to
move over, in the formats of MirrorMaker 2. `job` runs one round after another.

A mirror may be killed anywhere; the next run continues. The first request of the next task for a partition aborts the
open transaction and fences a task that was thought dead. Only then is the committed offset read.
"""

from typing import Final

PARTITIONING: Final = ("auto", "keep", "hash")
