"""`klamm user`: SCRAM users of a broker, whether it runs or not."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from klamm.broker.commands import CannotBeDone
from klamm.cli.program import EXIT_OK
from klamm.config.load import load
from klamm.protocol.scram import BY_NAME, MAX_ITERATIONS, MIN_ITERATIONS, random_text, salt_password

if TYPE_CHECKING:
    from klamm.cli.users import Users
    from klamm.client.sasl import Credentials

DESCRIPTION: Final = """\
List, add or delete the users that log in with SCRAM. For a stopped broker (its config file, or --override
log.dirs=...) the metadata are changed in place; before its first start the log directory is made. For a running broker
give --bootstrap-server; log in there with --login.

Passwords come from the terminal, or from a file descriptor; they are never arguments, which everybody may read. A user
that exists gets the new password. Connections that are open stay until they log in again (connections.max.reauth.ms).

Exit code: 0 done, 2 a bad command line or config, 3 it cannot be done; the reason is one line.

examples:
  klamm user add alice server.properties
  klamm user add alice server.properties --mechanism SCRAM-SHA-256 --password-fd 3 3< secret
  klamm user list --bootstrap-server 127.0.0.1:9092 --login admin
  klamm user delete alice --bootstrap-server 127.0.0.1:9092 --login admin --login-password-fd 0 < secret
"""

DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
LOGINS: Final = ("PLAIN", *BY_NAME)


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    add = actions.add_parser("add", help="give a user a password", allow_abbrev=False)
    _declare_user(add)
    add.add_argument("--iterations", type=_iterations, default=MIN_ITERATIONS, metavar="N", help="of the hash (4096)")
    add.add_argument("--password-fd", type=int, metavar="FD", help="read the new password from this file descriptor")
    _declare_where(add)
    _declare_where(actions.add_parser("list", help="show users, mechanisms and iterations", allow_abbrev=False))
    delete = actions.add_parser("delete", help="take a user's credential away", allow_abbrev=False)
    _declare_user(delete)
    _declare_where(delete)


def _declare_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the user")
    parser.add_argument("--mechanism", choices=list(BY_NAME), default=DEFAULT_MECHANISM, help="(SCRAM-SHA-512)")


def _declare_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="server.properties", help="the config file of a stopped broker")
    parser.add_argument(
        "--override", action="append", default=[], metavar="key=value", help="set one key; may be given several times"
    )
    parser.add_argument("--bootstrap-server", type=_address, metavar="host:port", help="a broker that runs")
    parser.add_argument("--login", metavar="NAME", help="log in there as this user")
    parser.add_argument("--login-mechanism", choices=LOGINS, default=DEFAULT_MECHANISM, help="(SCRAM-SHA-512)")
    parser.add_argument("--login-password-fd", type=int, metavar="FD", help="read its password from this descriptor")


def run(options: argparse.Namespace) -> int:
    from klamm.cli.passwords import NoPassword
    from klamm.cli.users import CannotChange

    try:
        with _users(options) as users:
            _act(options, users)
    except (CannotChange, NoPassword) as error:
        raise CannotBeDone(str(error)) from None
    return EXIT_OK


def _act(options: argparse.Namespace, users: Users) -> None:
    if options.action == "list":
        for user in users.all_users():
            print(f"{user.name} {user.mechanism} iterations={user.iterations}")
    elif options.action == "delete":
        users.delete(options.name, BY_NAME[options.mechanism])
    else:
        _add(options, users)


def _add(options: argparse.Namespace, users: Users) -> None:
    from klamm.cli.passwords import read_password
    from klamm.cli.users import NewCredential

    mechanism = BY_NAME[options.mechanism]
    password = read_password(f"New password of {options.name}", options.password_fd, "--password-fd", twice=True)
    salt = random_text(os.urandom).encode()
    salted = salt_password(mechanism, password, salt, options.iterations)
    users.add(NewCredential(options.name, mechanism, options.iterations, salt, salted))


@contextmanager
def _users(options: argparse.Namespace) -> Iterator[Users]:
    if options.bootstrap_server is None:
        from klamm.broker.tools.users import stopped_users

        with stopped_users(load(options.file, options.override, os.environ)) as users:
            yield users
        return
    from klamm.cli.users import RunningUsers
    from klamm.client.blocking import NodeClient

    host, port = options.bootstrap_server
    client = NodeClient(host, port, credentials=_credentials(options))
    try:
        yield RunningUsers(client)
    finally:
        client.close()


def _credentials(options: argparse.Namespace) -> Credentials | None:
    if options.login is None:
        return None
    from klamm.cli.passwords import read_password
    from klamm.client.sasl import Credentials

    password = read_password(f"Password of {options.login}", options.login_password_fd, "--login-password-fd")
    return Credentials(options.login_mechanism, options.login, password)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


def _iterations(text: str) -> int:
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)
