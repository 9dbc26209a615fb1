"""The keys that hold secrets, and ways to pass a secret without the command line.

A command line is public: every user of the machine reads it with `ps`. So `--override` of a secret names where the
secret is: `key=${file:/path:name}` (a config provider), or `key=@3`, an open descriptor that is read to its end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from klamm.config.definitions import ConfigError

SECRETS: Final = frozenset(
    """
    delegation.token.master.key delegation.token.secret.key password.encoder.old.secret password.encoder.secret
    sasl.jaas.config sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.client.credentials.client.secret ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.password ssl.truststore.certificates ssl.truststore.password""".split()
)
"""Kafka's keys of type PASSWORD; the same under each prefix (`listener.name.x.`, `klamm.metrics.`, `zookeeper.`)."""

MOST_BYTES: Final = 1 << 20
_DESCRIPTOR: Final = re.compile(r"@([0-9]{1,6})", re.ASCII)
_REFERENCE: Final = re.compile(r"\$\{[^}]+:[^}]*\}")


def holds_secret(name: str) -> bool:
    """Return whether `name`, under any prefix, is a key of type PASSWORD."""
    parts = name.split(".")
    return any(".".join(parts[start:]) in SECRETS for start in range(len(parts)))


def from_command_line(overrides: Sequence[str]) -> list[str]:
    """Return the `key=value` pairs of a command line, with secrets read from their descriptors.

    Raises `ConfigError` when a secret itself is on the command line.
    """
    return [_without_secret(override) for override in overrides]


def _without_secret(override: str) -> str:
    name, _, value = (part.strip() for part in override.partition("="))
    return f"{name}={_secret(name, value)}" if holds_secret(name) else override


def _secret(name: str, value: str) -> str:
    descriptor = _DESCRIPTOR.fullmatch(value)
    if descriptor is not None:
        return _read_descriptor(name, int(descriptor[1]))
    if value and _REFERENCE.fullmatch(value) is None:
        raise ConfigError(
            f"--override {name}: every user of this machine can read a command line. Set it in server.properties or "
            f"the environment, or give {name}=@3 with descriptor 3 open on the secret"
        )
    return value


def _read_descriptor(name: str, number: int) -> str:
    try:
        with os.fdopen(number, "rb") as file:
            return file.read(MOST_BYTES).decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--override {name}: descriptor {number} cannot be read: {error}") from None
