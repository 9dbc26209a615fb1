"""Automatic creation: many clients may ask for the same missing topic at once; it is created once.

The first caller starts a round. Names that are requested meanwhile wait for the next round, all in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm.broker.controller.configs import automatic_topic
from klamm.protocol.errors import KafkaError, KafkaStorageError

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller

log = logging.getLogger(__name__)

Outcome = asyncio.Future[KafkaError | None]


class AutoCreation:
    """The rounds of one controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._waiting: dict[str, Outcome] = {}
        self._round: dict[str, Outcome] = {}
        self._task: asyncio.Task[None] | None = None

    async def create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Create the topics that do not exist. Return the errors of those that failed."""
        topics = self._controller.image.topics
        outcomes = {name: self._ask(name) for name in names if name not in topics}
        if not outcomes:
            return {}
        await asyncio.wait(outcomes.values())
        errors = {name: outcome.result() for name, outcome in outcomes.items()}
        return {name: error for name, error in errors.items() if error is not None}

    def _ask(self, name: str) -> Outcome:
        outcome = self._round.get(name) or self._waiting.get(name)
        if outcome is None:
            loop = asyncio.get_running_loop()
            outcome = self._waiting[name] = loop.create_future()
            if self._task is None:
                self._task = loop.create_task(self._run())
        return outcome

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._round, self._waiting = self._waiting, {}
                errors = await self._make(list(self._round))
                for name, outcome in self._round.items():
                    outcome.set_result(None if name in self._controller.image.topics else errors[name])
                self._round = {}
        finally:
            self._task = None

    async def _make(self, names: list[str]) -> dict[str | None, KafkaError | None]:
        """Create the topics and return the errors by name. A name that was created meanwhile by another request has
        one, too.
        """
        config = self._controller.config
        try:
            results = await self._controller.create_topics([automatic_topic(name, config) for name in names])
        except KafkaError as error:
            return dict.fromkeys(names, error)
        except Exception:
            log.exception("automatic creation of %d topic(s) failed", len(names))
            return dict.fromkeys(names, KafkaStorageError("the topic could not be created"))
        return {result.name: result.error for result in results}
