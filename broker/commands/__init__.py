"""The commands of `klamm` that come with the broker: their rows, and the errors that end one with a line on stderr.

`klamm.cli.program` defines the parts of a command's module. A module imports its dependencies when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.cli.program import Command
from klamm.config.definitions import ConfigError

EXIT_BAD_CONFIG: Final = 2
EXIT_UNUSABLE: Final = 3


class CannotBeDone(Exception):
    """A command has failed. The message is one line for the operator."""


COMMANDS: Final = (
    Command("start", "run a broker in the foreground", "klamm.broker.commands.start"),
    Command("config", "list every config key with its default and meaning", "klamm.broker.commands.config"),
    Command("secrets", "make keys and password hashes for its config", "klamm.broker.commands.secrets"),
    Command("dump-log", "show what log files hold", "klamm.broker.commands.dump_log"),
    Command("export-kafka", "write a log directory for Apache Kafka", "klamm.broker.commands.export_kafka"),
    Command("repair", "repair the damaged log of a partition", "klamm.broker.commands.repair"),
    Command("snapshot", "take a snapshot of topics", "klamm.broker.commands.snapshot"),
    Command("restore", "bring topics of a snapshot back", "klamm.broker.commands.restore"),
    Command("user", "list, add or delete users that log in with SCRAM", "klamm.broker.commands.user"),
    Command("verify", "verify whole log dirs", "klamm.broker.commands.verify"),
)
FAILURES: Final[Mapping[type[Exception], int]] = {ConfigError: EXIT_BAD_CONFIG, CannotBeDone: EXIT_UNUSABLE}
