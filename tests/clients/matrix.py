"""What the client matrix shows of each client: one scenario for each column, written once for all of them.

A scenario takes a `Bench` and tells its cell: what has passed. It raises what has failed, and `NotApplicable` with the
reason for what a library cannot do. Whether a group did what it should is asked of the broker, by our own client.
That of the column for transactions is in transacting.py.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.protocol.messages.describe_groups import DescribeGroupsRequest
from klamm.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from klamm.protocol.records.batch import Record, batches, records
from tests.clients.driver import NEWEST, Driver, Member, poll
from tests.clients.raw import create, fetch_all
from tests.clients.samples import CODECS, FIRST_TIMESTAMP, Received, Sent

PARTITIONS: Final = 4
COUNT: Final = 40
TIMEOUT_S: Final = 40.0
NUMBERS: Final = itertools.count(1)


class NotApplicable(Exception):
    """The client cannot do this, for the reason given."""


@dataclass
class Bench:
    """A client at work: `driver()` starts one more process of it, `client` is the first of them."""

    address: str
    node: NodeClient
    client: Driver
    hello: dict[str, Any]
    driver: Callable[[], Driver]
    other: Callable[[str], Driver]
    corpus: Corpus

    def topic(self, partitions: int = 1) -> str:
        name = f"{self.client.name}-{next(NUMBERS)}"
        create(self.node, name, partitions)
        return name

    def needs(self, what: str) -> None:
        if what in self.hello["cannot"]:
            raise NotApplicable(self.hello["cannot"][what])

    def can(self, what: str) -> bool:
        return what not in self.hello["cannot"]


def text(beginning: str, count: int = COUNT, partitions: int = 1) -> list[Sent]:
    """Records that compress well."""
    return [
        Sent(number % partitions, b"key-%d" % number, f"{beginning}{number:04} {beginning * 20}".encode())
        for number in range(count)
    ]


# -- producing and reading


def produces(bench: Bench) -> str:
    """Produce in every codec: key and value, in order; headers and timestamps where the client has them."""
    bench.needs("produce")
    producers = bench.hello.get("producers", [])
    for codec, producer in itertools.product(bench.hello["codecs"], producers or [""]):
        topic = bench.topic()
        sent = [_decorated(bench, number, record) for number, record in enumerate(text(codec))]
        config = {"compression.type": codec, **({"producer": producer} if producer else {})}
        offsets = bench.client.produce(bench.address, topic, sent, config)
        assert offsets in (None, list(range(COUNT)), [-1] * COUNT), offsets
        data = fetch_all(bench.node, topic, 0)
        stored = [record for at, header in batches(data) for record in records(data, header, 1 << 20, at)]
        assert [_kept(bench, record) for record in stored] == [(r.key, r.value, r.headers, r.timestamp) for r in sent]
        assert {header.codec.name.lower() for _, header in batches(data)} == {codec}
    listed = ", ".join(bench.hello["codecs"])
    return f"{listed}; by the {', '.join(producers)} producer" if producers else listed


def _decorated(bench: Bench, number: int, record: Sent) -> Sent:
    headers = (("number", b"%d" % number),) if bench.can("headers") and number < 1 else ()
    timestamp = FIRST_TIMESTAMP + number if bench.can("timestamps") else None
    return record._replace(headers=headers, timestamp=timestamp)


def _kept(bench: Bench, record: Record) -> tuple[Any, ...]:
    timestamp = record.timestamp if bench.can("timestamps") else None
    return record.key, record.value, tuple(record.headers), timestamp


class Corpus:
    """What the others have written: a topic of each, a partition for every codec. Made when it is first read."""

    def __init__(self, address: str, node: NodeClient, other: Callable[[str], Driver]) -> None:
        self._address = address
        self._node = node
        self._other = other
        self._made: dict[str, tuple[str, dict[str, list[Sent]]]] = {}

    def by(self, name: str) -> tuple[str, dict[str, list[Sent]]]:
        """The topic and what went into it, by codec."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> tuple[str, dict[str, list[Sent]]]:
        topic = f"corpus-{name}"
        create(self._node, topic, len(CODECS))
        written = {}
        for index, codec in enumerate(CODECS):
            headers = (("codec", codec.encode()),)
            sent = [record._replace(partition=index, headers=headers) for record in text(f"{name} {codec} ")]
            self._other(name).produce(self._address, topic, sent, {"compression.type": codec})
            written[codec] = sent
        return topic, written


def reads(bench: Bench) -> str:
    """What other clients have written, in every codec that this one knows."""
    bench.needs("consume")
    for name in NEWEST:
        topic, written = bench.corpus.by(name)
        known = [codec for codec in CODECS if codec in bench.hello["codecs"]]
        wanted = {CODECS.index(codec): len(written[codec]) for codec in known}
        found = bench.client.consume(bench.address, topic, wanted)
        for codec in known:
            sent = [(record.key, record.value, record.headers) for record in written[codec]]
            if not bench.can("headers"):
                sent = [(key, value, ()) for key, value, _ in sent]
            rows = [record for record in found if record.partition == CODECS.index(codec)]
            assert [record.offset for record in rows] == list(range(len(sent))), f"{name} {codec}"
            assert [(record.key, record.value, record.headers) for record in rows] == sent, f"{name} {codec}"
    return ", ".join(known)


def is_read(bench: Bench) -> str:
    """What this client has written, by the others."""
    bench.needs("produce")
    topic = bench.topic()
    sent = text("read me")
    bench.client.produce(bench.address, topic, sent, {"compression.type": bench.hello["codecs"][-1]})
    for name in NEWEST:
        found = bench.other(name).consume(bench.address, topic, {0: COUNT})
        assert [(record.key, record.value) for record in found] == [(record.key, record.value) for record in sent], name
    return "yes"


def finds_times(bench: Bench) -> str:
    """The first record of a time or later, and what follows."""
    bench.needs("offset_for_time")
    topic = bench.topic()
    sent = [record._replace(timestamp=FIRST_TIMESTAMP + 1000 * n) for n, record in enumerate(text("time"))]
    bench.other("confluent-kafka").produce(bench.address, topic, sent)
    for number, timestamp in ((0, FIRST_TIMESTAMP - 5), (7, FIRST_TIMESTAMP + 6_500), (7, FIRST_TIMESTAMP + 7_000)):
        offset = bench.client.offset_for_time(bench.address, topic, timestamp)
        assert offset == number, f"{timestamp}: {offset} is not {number}"
        found = bench.client.consume(bench.address, topic, {0: COUNT}, starts={0: number})
        assert [record.value for record in found] == [record.value for record in sent[number:]]
    return "yes"


# -- groups


def shares(bench: Bench) -> str:
    """Two members have all partitions between them; when one leaves, the other continues from the committed offsets."""
    bench.needs("group")
    return _shares(bench, {})


def shares_new(bench: Bench) -> str:
    """The same in a group of KIP-848."""
    bench.needs("group")
    if "consumer" not in bench.hello.get("protocols", ()):
        raise NotApplicable("does not know the new group protocol")
    return _shares(bench, {"group.protocol": "consumer"})


def _shares(bench: Bench, config: Mapping[str, str]) -> str:
    topic = bench.topic(PARTITIONS)
    owners = new_owners if config else classic_owners
    with bench.driver() as one, bench.driver() as two:
        first = Member(one, bench.address, topic, topic, config)
        poll_until(lambda: owners(bench.node, topic) == [PARTITIONS], [first])
        second = Member(two, bench.address, topic, topic, config)
        both = [first, second]
        poll_until(lambda: owners(bench.node, topic) == [PARTITIONS // 2] * 2, both)
        send(bench, topic, "a")
        seen: set[bytes | None] = set()
        poll_until(lambda: seen == values("a"), both, seen)
        commit(bench, topic, COUNT, both)
        first.leave()
        poll_until(lambda: owners(bench.node, topic) == [PARTITIONS], [second])
        send(bench, topic, "b")
        seen = set()
        poll_until(lambda: len(seen) >= COUNT, [second], seen)
        assert seen == values("b")
        second.leave()
    return "yes"


def goes_on(bench: Bench) -> str:
    """A new process reads what came after the commit of the last one, and nothing else."""
    bench.needs("commit")
    topic = bench.topic(PARTITIONS)
    send(bench, topic, "a")
    for beginning, total in (("a", COUNT), ("b", 2 * COUNT)):
        with bench.driver() as one:
            member = Member(one, bench.address, topic, topic, None)
            seen: set[bytes | None] = set()
            poll_until(lambda: len(seen) >= COUNT, [member], seen)  # noqa: B023
            assert seen == values(beginning)
            commit(bench, topic, total, [member])
            member.leave()
        send(bench, topic, "b")
    return "yes"


def send(bench: Bench, topic: str, beginning: str) -> None:
    """`text` by another client."""
    bench.other("confluent-kafka").produce(bench.address, topic, text(beginning, partitions=PARTITIONS))


def values(beginning: str) -> set[bytes | None]:
    """Those of `text`."""
    return {record.value for record in text(beginning)}


def poll_until(
    done: Callable[[], bool], members: Sequence[Member], seen: set[bytes | None] | None = None
) -> list[Received]:
    """Poll all until it is so; what comes is added to `seen` and returned."""
    found: list[Received] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, f"{len(found)} records, then nothing"
        rows = poll(members)
        found += rows
        if seen is not None:
            seen.update(record.value for record in rows)
    return found


def classic_owners(node: NodeClient, group: str) -> list[int]:
    """How many partitions each member has, [] while the group has none or is in a rebalance."""
    response = node.request(DescribeGroupsRequest(groups=[group]), 5)
    (described,) = response.groups
    if described.group_state != "Stable":
        return []
    return sorted(len(assigned(bytes(member.member_assignment))) for member in described.members)


def new_owners(node: NodeClient, group: str) -> list[int]:
    """The same of a group of KIP-848."""
    response = node.request(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 0)
    (described,) = response.groups
    if described.group_state != "Stable":
        return []
    topics = [member.assignment.topic_partitions for member in described.members]
    return sorted(sum(len(topic.partitions) for topic in one) for one in topics)


def assigned(assignment: bytes) -> list[int]:
    """The partitions of a consumer's assignment to one topic; the layout is ConsumerProtocolAssignment's."""
    if not assignment:
        return []
    _, topics = struct.unpack_from(">hi", assignment)
    if not topics:
        return []
    assert topics == 1
    (length,) = struct.unpack_from(">h", assignment, 6)
    (count,) = struct.unpack_from(">i", assignment, 8 + length)
    return list(struct.unpack_from(f">{count}i", assignment, 12 + length))


def commit(bench: Bench, group: str, total: int, members: Sequence[Member]) -> None:
    """Commit, and wait until the broker has it: some clients do it by themselves, in their own time."""
    for member in members:
        member.commit()
    poll_until(lambda: sum(committed(bench, group)) == total, members)


def committed(bench: Bench, group: str) -> list[int]:
    topics = [OffsetFetchRequestTopic(name=group, partition_indexes=list(range(PARTITIONS)))]
    response = bench.node.request(OffsetFetchRequest(group_id=group, topics=topics), 5)
    (topic,) = response.topics
    return [max(partition.committed_offset, 0) for partition in topic.partitions]
