"""The commands of `klamm-pipeline`: their rows, and the error that ends a command with a line on stderr.

`klamm.cli.program` describes the module of a command. Such a module imports Spark and Arrow inside functions, so that
`--help` is quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.cli.program import EXIT_FAILED, Command
from klamm.pipeline.errors import PipelineError

COMMANDS: Final = (
    Command(
        "audit",
        "counts per topic and window at producers, broker, mirror and warehouse, compared",
        "klamm.pipeline.commands.audit",
    ),
    Command("compact", "a Delta table of the latest value per key, kept up to date", "klamm.pipeline.commands.compact"),
    Command("dlq", "dead letters listed, and replayed to their topics", "klamm.pipeline.commands.dlq"),
    Command("load", "topics to a Delta table, exactly once", "klamm.pipeline.commands.load"),
    Command("mirror", "one cluster's topics in another, exactly once", "klamm.pipeline.commands.mirror"),
    Command("publish", "a Delta table back to a topic, in one transaction", "klamm.pipeline.commands.publish"),
    Command("status", "how far a table is loaded, and its lag", "klamm.pipeline.commands.status"),
    Command("vacuum", "delete files that no version within the retention needs", "klamm.pipeline.commands.vacuum"),
    Command("verify", "whether a loaded table has exactly the records of the log", "klamm.pipeline.commands.verify"),
)
FAILURES: Final[Mapping[type[Exception], int]] = {PipelineError: EXIT_FAILED}
