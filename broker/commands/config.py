"""`klamm config`: every config key with its default and meaning."""

from __future__ import annotations

import argparse

from klamm.cli.program import EXIT_OK


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare no options."""


def run(_: argparse.Namespace) -> int:
    from klamm.config.reference import as_text

    print(as_text(), end="")
    return EXIT_OK
