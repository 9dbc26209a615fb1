"""Incremental fetch sessions (KIP-227): the broker remembers which partitions a fetcher wants.

A full fetch with epoch 0 opens a session. From then on a request names only changes, and a response carries only
partitions that have records, an error, or another high watermark or log start offset than in the last response.
Partitions that had records move to the end of the order, so that a busy one does not starve the others.

The cache is bounded by ``max.incremental.fetch.session.cache.slots``. A new session replaces one that has been unused
for two minutes; else a smaller one that was opened more than two minutes ago; else there is no session (session id 0,
and the client goes on with full fetches). Sessions live in memory only; after a restart a client gets
FETCH_SESSION_ID_NOT_FOUND and opens a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from klamm.protocol.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch

if TYPE_CHECKING:
    from klamm.protocol.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH = 0  # asks for a new session
FINAL_EPOCH = -1  # closes the session, or fetches without one
NO_SESSION = 0
EVICTION_MS = 120_000
MAX_EPOCH = 0x7FFFFFFF
TOPIC_IDS_FROM = 13

Key = tuple[str, bytes, int]


class FetchedPartition:
    """One partition of a fetch, with the offsets that the last response of its session reported."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, request: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.name: str | None = None  # of the topic, once it was found by its id
        self.partition = request.partition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(request)

    def update(self, request: FetchPartition) -> None:
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.partition_max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch

    def take_over(self, known: FetchedPartition) -> None:
        """Copy the offsets that the session has reported for this partition."""
        self.high_watermark = known.high_watermark
        self.log_start_offset = known.log_start_offset


class FetchSession:
    """The partitions of one fetcher, in the order in which they are read next."""

    __slots__ = ("created_ms", "epoch", "id", "partitions", "used_ms", "uses_topic_ids")

    def __init__(
        self, session_id: int, partitions: dict[Key, FetchedPartition], *, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms

    def served(self, key: Key) -> None:
        """Move a partition that had records to the end of the order."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.partitions[key] = partition


class FetchSessions:
    """All sessions of this broker, the least recently used first."""

    def __init__(self, slots: int, *, now_ms: Callable[[], int], random_id: Callable[[], int]) -> None:
        """Hold at most `slots` sessions; ``random_id`` returns positive 31-bit integers."""
        self._slots = slots
        self._now_ms = now_ms
        self._random_id = random_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self, request: FetchRequest, version: int, wanted: dict[Key, FetchedPartition] | None = None
    ) -> tuple[FetchSession | None, bool, Collection[FetchedPartition]]:
        """Return the session, whether the fetch is incremental, and the partitions to read. Raises the three session
        errors.

        `wanted` has the partitions of the request, by `named`; without it they are looked up here.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch == FINAL_EPOCH:
            self._sessions.pop(session_id, None)
            return None, False, (named(request) if wanted is None else wanted).values()
        uses_topic_ids = version >= TOPIC_IDS_FROM
        if epoch == INITIAL_EPOCH:
            self._sessions.pop(session_id, None)
            partitions = named(request) if wanted is None else wanted
            return self._open(partitions, uses_topic_ids=uses_topic_ids), False, tuple(partitions.values())
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"no fetch session {session_id} is known")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} was opened with another way to name topics")
        session.epoch = epoch + 1 if epoch < MAX_EPOCH else 1
        session.used_ms = self._now_ms()
        del self._sessions[session_id]
        self._sessions[session_id] = session
        if request.topics or request.forgotten_topics_data:
            _merge(session.partitions, request, wanted)
            if not session.partitions:
                del self._sessions[session_id]
                return None, False, ()
        return session, True, session.partitions.values()

    def forget(self, session: FetchSession) -> None:
        """Close a session before its client has received the id."""
        self._sessions.pop(session.id, None)

    def _open(self, partitions: dict[Key, FetchedPartition], *, uses_topic_ids: bool) -> FetchSession | None:
        now_ms = self._now_ms()
        if not partitions or not self._make_room(len(partitions), now_ms):
            return None
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(session_id, partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        self._sessions[session_id] = session
        return session

    def _make_room(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        smaller = [
            session
            for session in self._sessions.values()
            if len(session.partitions) < size and now_ms - session.created_ms > EVICTION_MS
        ]
        if not smaller:
            return False
        del self._sessions[min(smaller, key=lambda session: len(session.partitions)).id]
        return True


def named(request: FetchRequest) -> dict[Key, FetchedPartition]:
    """Return the partitions in a request, each once; in any thread."""
    return {
        (topic.topic, topic.topic_id, partition.partition): FetchedPartition(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    }


def _merge(
    partitions: dict[Key, FetchedPartition], request: FetchRequest, wanted: dict[Key, FetchedPartition] | None
) -> None:
    if wanted is not None:  # made in a thread, as they are many
        for key in wanted.keys() & partitions.keys():
            wanted[key].take_over(partitions[key])
        partitions |= wanted
    else:
        for topic in request.topics:
            for asked in topic.partitions:
                key = (topic.topic, topic.topic_id, asked.partition)
                known = partitions.get(key)
                if known is None:
                    partitions[key] = FetchedPartition(topic.topic, topic.topic_id, asked)
                else:
                    known.update(asked)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            partitions.pop((forgotten.topic, forgotten.topic_id, index), None)
