"""Transactions in the client matrix: what a client writes in them, which readers get it, and fencing.

A story is one topic with transactions that are each as long in every partition, so the offset that each record must
have is known. A read_committed reader gets the committed records, in order, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.clients.driver import Driver, DriverError, Member, Transactions
from tests.clients.matrix import COUNT, PARTITIONS, Bench, NotApplicable, committed, poll_until, send, text, values
from tests.clients.samples import Sent

READERS: Final = ("confluent-kafka", "java-4.4.0")
WRITER: Final = "aiokafka"
"""Writes for those that cannot."""
LENGTH: Final = COUNT // PARTITIONS
STEP: Final = LENGTH + 1
"""Offsets that a transaction takes in each partition: those of its records, and its marker's."""
COMMITTED: Final = {"isolation.level": "read_committed"}
UNCOMMITTED: Final = {"isolation.level": "read_uncommitted"}
FENCED: Final = re.compile("fence|epoch", re.IGNORECASE)


class Chapter(NamedTuple):
    """A transaction: how its records begin, and how it ends."""

    beginning: str
    commit: bool


Row = tuple[int, int, bytes | None]
"""Partition, offset, value."""


def transacts(bench: Bench) -> str:
    """All of it by a client that has transactions; by the others, what they read of another client's.

    A client that cannot read where the "markers" of transactions are says so, and it is tried.
    """
    bench.needs("consume")
    topic = bench.topic(PARTITIONS)
    if bench.can("transactions"):
        story = _story(bench, topic)
    else:
        with Driver(WRITER) as writer:
            story = _outcomes(bench, writer, topic)
    if not bench.can("markers"):
        assert _is_misled(bench, topic, story), "reads what it cannot"
        bench.needs("markers")
    for reader in (bench.client, *map(bench.other, READERS)):
        assert _read(bench, reader, topic, story, UNCOMMITTED) == _written(story), reader.name
        if reader is not bench.client or bench.can("read_committed"):
            assert _read(bench, reader, topic, story, COMMITTED) == _committed(story), reader.name
    if bench.can("transactions"):
        return "yes"
    if not bench.can("read_committed"):
        raise NotApplicable(bench.hello["cannot"]["read_committed"])
    return f"reads committed; n/a: {bench.hello['cannot']['transactions']}"


def _story(bench: Bench, topic: str) -> list[Chapter]:
    source = bench.topic(PARTITIONS)
    with bench.driver() as second:
        story = _outcomes(bench, bench.client, topic) + _is_fenced(bench, bench.client, second, topic)
        send(bench, source, "d")
        member, transactions = _passing(bench, second, source, topic)
        story += [_pass_on(member, transactions, topic, "d", commit=True)]
        poll_until(lambda: committed(bench, source) == [LENGTH] * PARTITIONS, [])
        send(bench, source, "e")
        story += [_pass_on(member, transactions, topic, "e", commit=False)]
        member.leave()
    with bench.driver() as third:
        # it continues from the committed positions, so it gets the records of the aborted transaction
        member, transactions = _passing(bench, third, source, topic)
        story += [_pass_on(member, transactions, topic, "e", commit=True)]
        poll_until(lambda: committed(bench, source) == [2 * LENGTH] * PARTITIONS, [])
        member.leave()
    return story


def _outcomes(bench: Bench, driver: Driver, topic: str) -> list[Chapter]:
    """Transactions that are committed and aborted, one after the other."""
    story = [Chapter("a", commit=True), Chapter("b", commit=False), Chapter("c", commit=True)]
    transactions = Transactions(driver, bench.address, topic)
    for beginning, commit in story:
        transactions.transact(topic, text(beginning, partitions=PARTITIONS), commit=commit)
    return story


def _is_fenced(bench: Bench, old: Driver, new: Driver, topic: str) -> list[Chapter]:
    """A second producer with its transactional id ends a producer's open transaction, and the producer."""
    first, second = (Transactions(driver, bench.address, topic) for driver in (old, new))
    first.begin()
    first.send(topic, text("f", partitions=PARTITIONS))
    second.begin()
    error = _failure(first, topic)
    assert FENCED.search(error), error
    second.send(topic, text("g", partitions=PARTITIONS))
    second.end(commit=True)
    return [Chapter("f", commit=False), Chapter("g", commit=True)]


def _failure(transactions: Transactions, topic: str) -> str:
    """What the library says when its transaction goes on."""
    try:
        transactions.send(topic, text("too late", partitions=PARTITIONS))
        transactions.end(commit=True)
    except DriverError as error:
        return str(error)
    raise AssertionError("the first producer was not fenced")


def _passing(bench: Bench, driver: Driver, source: str, topic: str) -> tuple[Member, Transactions]:
    member = Member(driver, bench.address, source, source, COMMITTED, topic)
    return member, Transactions(driver, bench.address, topic, source)


def _pass_on(member: Member, transactions: Transactions, topic: str, beginning: str, *, commit: bool) -> Chapter:
    """Produce the consumed records, with the positions as part of the transaction."""
    seen: set[bytes | None] = set()
    rows = poll_until(lambda: len(seen) >= COUNT, [member], seen)
    member.finish()
    assert seen == values(beginning)
    assert len(rows) == COUNT
    transactions.transact(topic, [Sent(row.partition, row.key, row.value) for row in rows], commit=commit)
    return Chapter(beginning, commit)


def _read(bench: Bench, reader: Driver, topic: str, story: Sequence[Chapter], config: dict[str, str]) -> list[Row]:
    """Return the rows by partition, each in the order in which it came."""
    end = len(story) * STEP - 1
    rows = reader.consume(bench.address, topic, dict.fromkeys(range(PARTITIONS), end), config=config)
    return sorted(((row.partition, row.offset, row.value) for row in rows), key=lambda row: row[0])


def _is_misled(bench: Bench, topic: str, story: Sequence[Chapter]) -> bool:
    """Whether it is so that this client does not get along with the markers of transactions."""
    try:
        return _read(bench, bench.client, topic, story, UNCOMMITTED) != _written(story)
    except DriverError:
        return True


def _written(story: Sequence[Chapter]) -> list[Row]:
    """All records, where they must be."""
    return sorted(
        (record.partition, index * STEP + number // PARTITIONS, record.value)
        for index, chapter in enumerate(story)
        for number, record in enumerate(text(chapter.beginning, partitions=PARTITIONS))
    )


def _committed(story: Sequence[Chapter]) -> list[Row]:
    return [row for row in _written(story) if story[row[1] // STEP].commit]
