"""The command `klamm`, also as `python -m klamm`: one parser with the commands of all rooms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from klamm.broker.commands import COMMANDS, FAILURES
from klamm.cli.program import Program

PROGRAM: Final = Program("klamm", "A standalone Kafka broker.", COMMANDS, FAILURES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    return PROGRAM.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
