"""Fetch sessions: opening, going on, forgetting, eviction, and the three errors."""

from __future__ import annotations

import itertools

import pytest

from klamm.broker.fetch.fetch_session import EVICTION_MS, FetchSession, FetchSessions
from klamm.protocol.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

VERSION = 12


class Cache:
    """Sessions with a clock that stands still and ids 1, 2, 3 ..."""

    def __init__(self, slots: int = 2) -> None:
        self.now_ms = 0
        ids = itertools.count(1)
        self.sessions = FetchSessions(slots, now_ms=lambda: self.now_ms, random_id=lambda: next(ids))

    def open(self, *partitions: int) -> FetchSession:
        session, incremental, _ = self.sessions.resolve(request(0, 0, partitions), VERSION)
        assert session is not None and not incremental
        return session


def request(
    session_id: int, epoch: int, partitions: tuple[int, ...] = (), forget: tuple[int, ...] = ()
) -> FetchRequest:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=index) for index in partitions])]
    forgotten = [ForgottenTopic(topic="t", partitions=list(forget))]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics_data=forgotten if forget else [],
    )


def test_a_request_without_a_session_reads_what_it_names() -> None:
    session, incremental, wanted = Cache().sessions.resolve(request(0, -1, (3, 1)), VERSION)
    assert session is None and not incremental
    assert [partition.partition for partition in wanted] == [3, 1]


def test_an_incremental_request_reads_what_the_session_remembers() -> None:
    cache = Cache()
    session = cache.open(0, 1)
    same, incremental, wanted = cache.sessions.resolve(request(session.id, 1), VERSION)
    assert same is session and incremental
    assert [partition.partition for partition in wanted] == [0, 1]


def test_partitions_are_added_updated_and_forgotten() -> None:
    cache = Cache()
    session = cache.open(0, 1)
    _, _, wanted = cache.sessions.resolve(request(session.id, 1, partitions=(2,), forget=(0,)), VERSION)
    assert [partition.partition for partition in wanted] == [1, 2]
    update = request(session.id, 2, (1,))
    update.topics[0].partitions[0].fetch_offset = 77
    _, _, wanted = cache.sessions.resolve(update, VERSION)
    assert [(partition.partition, partition.fetch_offset) for partition in wanted] == [(1, 77), (2, 0)]


def test_a_session_that_forgets_everything_is_closed() -> None:
    cache = Cache()
    session = cache.open(0)
    closed, _, wanted = cache.sessions.resolve(request(session.id, 1, forget=(0,)), VERSION)
    assert closed is None and not list(wanted) and len(cache.sessions) == 0


def test_a_served_partition_goes_to_the_end() -> None:
    session = Cache().open(0, 1, 2)
    session.served(("t", bytes(16), 0))
    assert [key[2] for key in session.partitions] == [1, 2, 0]


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(FetchSessionIdNotFound):
        Cache().sessions.resolve(request(9, 1), VERSION)
    with pytest.raises(FetchSessionIdNotFound):
        Cache().sessions.resolve(request(0, 5), VERSION)


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_wrong_epoch_is_refused(epoch: int) -> None:
    cache = Cache()
    session = cache.open(0)
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.sessions.resolve(request(session.id, epoch), VERSION)


def test_an_epoch_cannot_be_used_twice() -> None:
    cache = Cache()
    session = cache.open(0)
    cache.sessions.resolve(request(session.id, 1), VERSION)
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.sessions.resolve(request(session.id, 1), VERSION)


def test_the_epoch_wraps_to_one() -> None:
    cache = Cache()
    session = cache.open(0)
    session.epoch = 0x7FFFFFFF
    cache.sessions.resolve(request(session.id, 0x7FFFFFFF), VERSION)
    assert session.epoch == 1


def test_a_session_keeps_to_names_or_to_ids() -> None:
    cache = Cache()
    session = cache.open(0)
    with pytest.raises(FetchSessionTopicIdError):
        cache.sessions.resolve(request(session.id, 1), 13)


def test_the_final_epoch_closes_the_session() -> None:
    cache = Cache()
    session = cache.open(0)
    cache.sessions.resolve(request(session.id, -1), VERSION)
    assert len(cache.sessions) == 0


def test_a_full_cache_opens_no_session() -> None:
    cache = Cache(slots=1)
    first = cache.open(0)
    session, _, wanted = cache.sessions.resolve(request(0, 0, (0, 1)), VERSION)
    assert session is None and len(list(wanted)) == 2
    assert cache.sessions.resolve(request(first.id, 1), VERSION)[0] is first


def test_an_unused_session_makes_room() -> None:
    cache = Cache(slots=1)
    first = cache.open(0)
    cache.now_ms = EVICTION_MS + 1
    cache.open(1)
    with pytest.raises(FetchSessionIdNotFound):
        cache.sessions.resolve(request(first.id, 1), VERSION)


def test_a_larger_session_displaces_a_smaller_old_one() -> None:
    cache = Cache(slots=2)
    small, large = cache.open(0), cache.open(0, 1, 2)
    cache.now_ms = EVICTION_MS + 1
    for session in (small, large):
        cache.sessions.resolve(request(session.id, 1), VERSION)
    cache.open(5, 6)
    assert cache.sessions.resolve(request(large.id, 2), VERSION)[0] is large
    with pytest.raises(FetchSessionIdNotFound):
        cache.sessions.resolve(request(small.id, 2), VERSION)
