"""Which replies may leave, and which request may be dispatched, while earlier ones are unanswered; no I/O.

Only Produce goes ahead of unanswered requests, and only of Produce that waits for its acks; everything else waits for
its predecessors. A Produce whose answer is a task has not appended everything yet: nothing goes ahead of it. The queue
is empty most of the time: replies that nothing precedes never come here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from klamm.broker.network.reply import CloseConnection, Reply
from klamm.broker.stop_signal import StopRequested

logger = logging.getLogger(__name__)

PRODUCE_KEY = b"\x00\x00"  # a request begins with its API key

Pending: TypeAlias = "asyncio.Future[Reply | None]"


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that cannot be answered, so that none behind it may be."""

    kind: str
    reason: str


def _ignore(_: Pending) -> None:
    """Who was told before is gone."""


class ReplyQueue:
    """Replies, known and pending, in the order of their requests; `bytes` are those of the pending requests."""

    __slots__ = ("_on_done", "_only_produce", "answers", "bytes")

    def __init__(self, on_done: Callable[[Pending], None]) -> None:
        self._on_done = on_done
        self._only_produce = True
        self.answers: deque[tuple[Reply | Pending | None, int]] = deque()
        self.bytes = 0

    def lets_pass(self, frame: memoryview, max_inflight: int) -> bool:
        """May this request be dispatched now?"""
        return not self.answers or (
            self._only_produce and frame[:2] == PRODUCE_KEY and len(self.answers) < max_inflight
        )

    def is_open(self, max_inflight: int) -> bool:
        """Is there a request that would be let pass?"""
        return not self.answers or (self._only_produce and len(self.answers) < max_inflight)

    def put(self, answer: Pending, frame: memoryview) -> None:
        """The answer to the request in `frame` comes later."""
        size = len(frame)
        self.answers.append((answer, size))
        self.bytes += size
        if frame[:2] != PRODUCE_KEY or isinstance(answer, asyncio.Task):
            self._only_produce = False
        answer.add_done_callback(self._on_done)

    def take_ready(self) -> tuple[list[Reply], Failure | None]:
        """All replies that no unanswered request precedes. After a failure the queue is empty."""
        answers = self.answers
        replies: list[Reply] = []
        failure = None
        try:
            while answers:
                answer, size = answers[0]
                if answer is not None and not isinstance(answer, Reply):
                    if not answer.done():
                        break
                    answer = answer.result()
                answers.popleft()
                self.bytes -= size
                if answer is not None:
                    replies.append(answer)
        except asyncio.CancelledError:
            failure = Failure("cancelled", "a request was cancelled")
        except CloseConnection as error:
            failure = Failure("refused", error.reason)
        except (Exception, StopRequested):
            logger.exception("a request failed")
            failure = Failure("bug", "internal error")
        if failure is not None:
            self.abandon()
        if not answers:
            self._only_produce = True
        return replies, failure

    def close(self) -> None:
        """`abandon`, and forget the owner."""
        self.abandon()
        self._on_done = _ignore

    def abandon(self) -> None:
        """Nobody wants the answers any more: waits are cancelled. A task may be half-way through its work and goes on;
        what becomes of it is looked at, or asyncio would complain of an unseen exception."""
        abandoned = [answer for answer, _ in self.answers if _is_pending(answer)]
        self.answers.clear()
        self.bytes = 0
        self._only_produce = True
        for answer in abandoned:
            answer.remove_done_callback(self._on_done)
            answer.add_done_callback(_look_at)
            if not isinstance(answer, asyncio.Task):
                answer.cancel()


def _is_pending(answer: Reply | Pending | None) -> TypeGuard[Pending]:
    return answer is not None and not isinstance(answer, Reply)


def _look_at(future: Pending) -> None:
    if not future.cancelled():
        future.exception()
