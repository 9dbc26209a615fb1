"""One cluster's topics in another: `klamm-pipeline mirror`.

`rules` tells which topic becomes which, and which configs go along; `plan` what is to be done in a round: topics to
make, partitions to add, configs to change, and offset ranges to copy. `copying` copies one source partition, in
transactions that carry the next source offset (`progress`); it runs in Spark's tasks. `batches` decides which batches
go over untouched, and makes new ones of the rest. `syncs` and `checkpoints` hold what consumers need to move over, in
the formats of MirrorMaker 2. `job` is one round after another.

Killed anywhere, the next run goes on: an open transaction is aborted by the first request of the next task for the same
partition, which also fences a task that was thought dead, and only then is the committed offset read.
"""

from typing import Final

PARTITIONING: Final = ("auto", "keep", "hash")
