"""The levels of this process's loggers, for DescribeConfigs and IncrementalAlterConfigs (KIP-412).

Python's levels have Kafka's names: FATAL, ERROR, WARN, INFO, DEBUG and TRACE, the finest. ``root`` is the root logger.
A level holds until it is deleted or the process ends; after a deletion the level is inherited again.
"""

from __future__ import annotations

import logging

from klamm.broker.controller.configs import KeyUpdate, Op
from klamm.protocol.errors import InvalidConfig, InvalidRequest

ROOT = "root"
TRACE = 5
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def levels() -> dict[str, str]:
    """Return every logger with its effective level, by name; packages above the loggers are included."""
    names = sorted(logging.root.manager.loggerDict)
    found = {name: logging.getLogger(name) for name in (ROOT, *names)}
    return {name: level_name(logger.getEffectiveLevel()) for name, logger in found.items()}


def level_name(level: int) -> str:
    """Return the coarsest of Kafka's levels that passes no record that ``level`` holds back."""
    return next((name for name, value in LEVELS.items() if level >= value), "TRACE")


def alter(updates: list[KeyUpdate], *, validate_only: bool) -> None:
    """Set or delete levels, all or none. Raises InvalidConfig or InvalidRequest."""
    known = levels()
    for update in updates:
        _check(update, known)
    if validate_only:
        return
    for update in updates:
        logger = logging.getLogger(None if update.name == ROOT else update.name)
        logger.setLevel(LEVELS[str(update.value)] if update.op == Op.SET else logging.NOTSET)


def _check(update: KeyUpdate, known: dict[str, str]) -> None:
    name = update.name
    if update.op not in (Op.SET, Op.DELETE):
        raise InvalidRequest(f"the level of logger {name} can be set and deleted only")
    if name not in known:
        raise InvalidConfig(f"there is no logger {name!r}")
    if update.op == Op.DELETE and name == ROOT:
        raise InvalidRequest("the level of the root logger cannot be deleted")
    if update.op == Op.SET and update.value not in LEVELS:
        raise InvalidConfig(f"{update.value!r} is no log level; valid are {', '.join(LEVELS)}")
