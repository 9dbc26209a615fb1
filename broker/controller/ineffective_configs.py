"""Warnings, once per key, that a key set while the broker runs has no effect in Klamm.

Such keys are stored and shown, as tools set them for other brokers, too; an operator that relies on one must be able to
find out. Keys in the config file are reported at startup (`config.load.notes`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.broker.controller.configs import ConfigUpdate, Op, ResourceType
from klamm.config import GROUP_KEYS, TOPIC_KEYS
from klamm.config.definitions import Status
from klamm.config.load import broker_status

log = logging.getLogger(__name__)


class IneffectiveConfigWarnings:
    """The warnings, each logged once."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def update(self, update: ConfigUpdate) -> None:
        """Check an update that succeeded, without the keys that it deletes."""
        names = [key.name for key in update.keys if key.op != Op.DELETE]
        if update.resource_type == ResourceType.TOPIC:
            self.topic_keys(names)
        elif update.resource_type == ResourceType.GROUP:
            for name in names:
                self._say("group", name, GROUP_KEYS[name].status)
        else:
            self.broker_keys(names)

    def topic_keys(self, names: Iterable[str]) -> None:
        for name in names:
            row = TOPIC_KEYS.get(name)  # aliases have none, and work
            self._say("topic", name, row.status if row is not None else "works")

    def broker_keys(self, names: Iterable[str]) -> None:
        for name in names:
            self._say("broker", name, broker_status(name))

    def _say(self, kind: str, name: str, status: Status | None) -> None:
        if status == "works" or (kind, name) in self._said:
            return
        self._said.add((kind, name))
        if status is None:
            log.warning("unknown %s config %s: it is stored, and has no effect", kind, name)
        elif status == "later":
            log.warning("%s config %s: it is stored, but without effect yet", kind, name)
        else:
            log.warning("%s config %s: it is stored only, Klamm has no use for it", kind, name)
