"""Common parts of `klamm snapshot` and `klamm restore`: options, and notes about the result for the operator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.storage.scrub.scrub_state import KnownDamage


def add_arguments(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--topics", type=_names, metavar="a,b", help=f"topics or regular expressions, separated by commas ({default})"
    )
    parser.add_argument("--config", metavar="server.properties", help="the broker's config file")
    parser.add_argument(
        "--override", action="append", default=[], metavar="key=value", help="set one key; may be given several times"
    )


def say_if_damaged(damage: Sequence[KnownDamage]) -> None:
    from klamm.broker.tools.known_damage import describe_damage

    if damage:
        print(describe_damage(damage), file=sys.stderr)


def say_if_elsewhere(directory: Path, log_dirs: Sequence[Path]) -> None:
    """Note that everything was copied, which the operator may have wanted, or not expected for many gigabytes."""
    for path in log_dirs:
        if path.stat().st_dev != directory.stat().st_dev:
            print(
                f"{directory} is on another filesystem than {path}: nothing is shared, all is copied", file=sys.stderr
            )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
