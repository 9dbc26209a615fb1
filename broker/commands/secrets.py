"""`klamm secrets`: keys and password hashes, as the config names them.

Passwords are read from the terminal or, in a pipe, from standard input: never from the command line.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path

from klamm.broker.commands import CannotBeDone
from klamm.cli.program import EXIT_OK

DESCRIPTION = """Make keys and password hashes, as the config names them.

  klamm secrets hash-password prometheus >> metrics.users     a line for klamm.metrics.auth=basic:metrics.users
  klamm secrets new-key /etc/klamm/secret.key                 a new key for klamm.secret.key.file
"""


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    hashing = actions.add_parser("hash-password", help="print name:hash; the password is asked for or read from a pipe")
    hashing.add_argument("name", help="the name of the user")
    key = actions.add_parser("new-key", help="put a new key first in a key file; the next start encrypts under it")
    key.add_argument("file", type=Path, help="the file, made with mode 0600 if it is missing")


def run(options: argparse.Namespace) -> int:
    if options.action == "hash-password":
        from klamm.broker.metrics.access import hashed

        if ":" in options.name:
            raise CannotBeDone(f"{options.name!r}: a name has no colon")
        print(f"{options.name}:{hashed(_password())}")
        return EXIT_OK
    from klamm.broker.security.file_modes import NotPrivate
    from klamm.broker.security.secret_box import add_key

    try:
        print(f"{options.file}: key {add_key(options.file)} is first now")
    except (OSError, NotPrivate) as error:
        raise CannotBeDone(str(error)) from None
    return EXIT_OK


def _password() -> str:
    password = getpass.getpass("password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise CannotBeDone("the password is empty")
    return password
