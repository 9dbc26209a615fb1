"""The operations of clients and their answers, as a history: the input of the checker.

Times are of one clock that only grows. ``end`` of an operation without an answer is infinite: it may have been
carried out at any time after its ``start``, or never. Values are unique in a history: one value is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf

Place = tuple[str, int]  # topic, partition


class Outcome(Enum):
    """The known outcome of an operation: it was carried out, it was not, or nobody can say."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """A producer writes one value; ``transaction`` is the key of its transaction, if it has one, and ``source`` the
    value that it was made of, which must not be made into anything twice. Producers are idempotent: what one writes to
    a partition stands there in the order in which it began to write it."""

    process: str
    place: Place
    value: bytes
    start: float
    end: float = inf
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    transaction: str | None = None
    source: bytes | None = None


@dataclass(slots=True)
class Transaction:
    """``start`` and ``end`` are of its end: when the producer asked for it, and when it got the answer. ``commits``:
    whether it asked for a commit."""

    key: str
    process: str
    commits: bool = False
    start: float = inf
    end: float = inf
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def is_committed(self) -> bool:
        return self.commits and self.outcome is Outcome.OK

    @property
    def is_aborted(self) -> bool:
        """Whether it is certain that nothing of it may be seen."""
        return (not self.commits and self.outcome is not Outcome.FAILED) or self.outcome is Outcome.FAILED


@dataclass(slots=True)
class Poll:
    """A reader got these records of one partition, from ``position`` on. ``session`` changes when the reader goes to
    another place of its own will: it was assigned the partition again, or sought."""

    process: str
    session: int
    place: Place
    position: int
    records: Sequence[tuple[int, bytes]]  # (offset, value)
    start: float
    end: float
    committed_only: bool = True


@dataclass(slots=True)
class Commit:
    """A member of a group stores its position; ``transaction`` as with `Send`."""

    process: str
    group: str
    place: Place
    offset: int
    start: float
    end: float = inf
    outcome: Outcome = Outcome.UNKNOWN
    transaction: str | None = None
    generation: int = -1


@dataclass(slots=True)
class Committed:
    """The position of a group that a client was sent; -1: none."""

    process: str
    group: str
    place: Place
    offset: int
    start: float
    end: float


@dataclass(slots=True)
class History:
    """Everything, in the order in which it began."""

    sends: list[Send] = field(default_factory=list)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    final: dict[Place, list[tuple[int, bytes]]] = field(default_factory=dict)
    """What a read_committed reader finds at the end, from the beginning of each partition."""

    uncommitted: dict[Place, list[tuple[int, bytes]]] = field(default_factory=dict)
    """The same of a read_uncommitted reader."""
