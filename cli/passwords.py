"""Passwords for commands, from the terminal or a file descriptor; never from arguments, which everybody may read."""

from __future__ import annotations

import getpass
import os
import sys


class NoPassword(Exception):
    """No password is available; the message is the line for the operator."""


def read_password(prompt: str, descriptor: int | None, option: str, *, twice: bool = False) -> str:
    """Return the password from `descriptor`, all but a newline at its end; without one, ask the terminal.

    A new password is asked `twice`. `option` names the descriptor, for messages. Raises NoPassword.
    """
    if descriptor is not None:
        password = _from_descriptor(descriptor, option)
    elif sys.stdin.isatty():
        password = getpass.getpass(f"{prompt}: ")
        if twice and getpass.getpass(f"{prompt}, again: ") != password:
            raise NoPassword("the passwords differ")
    else:
        raise NoPassword(f"there is no terminal: give the password on a file descriptor, {option} 0 < file")
    if not password:
        raise NoPassword("the password is empty")
    return password


def _from_descriptor(descriptor: int, option: str) -> str:
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read().removesuffix(b"\n").removesuffix(b"\r").decode()
    except OSError as error:
        raise NoPassword(f"{option} {descriptor}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NoPassword(f"{option} {descriptor}: the password is not UTF-8") from None
