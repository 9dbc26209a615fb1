"""The commands of `klamm` beside `start` and `config`: a module each, with `declare` for its options and `run`.

Declaring is cheap, since `klamm start` does it, too: what a command needs is imported when it runs.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(commands: Commands, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    """A parser for one command; its help is printed as written."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
