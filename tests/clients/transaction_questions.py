"""Questions about transactions, in both versions of the protocol; for `test_transaction_reference.py`.

Each gives (name, answer). Where Apache Kafka finishes something in the background it answers CONCURRENT_TRANSACTIONS
for a while: `settled` asks again until it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from klamm.client.blocking import NodeClient
from tests.support.transactions import READ_COMMITTED, Client

Question = tuple[str, Any]


def questions(node: NodeClient) -> Iterator[Question]:
    """All of them, in their order."""
    client = Client(node)
    yield from _starting(client)
    yield from _version_1(client)
    yield from _version_2(client)
    yield from _offsets(client)
    yield from _markers(client)
    yield from _looking(client)


def _starting(client: Client) -> Iterator[Question]:
    for version in range(6):
        yield f"init v{version} empty", client.init("", version)
        yield f"init v{version} timeout 0", client.init("x", version, timeout_ms=0)
        yield f"init v{version} timeout -1", client.init("x", version, timeout_ms=-1)
        yield f"init v{version} timeout too long", client.init("x", version, timeout_ms=900_001)
        yield f"init v{version}", client.init(f"new {version}", version)
        yield f"init v{version} again", client.init(f"new {version}", version)
    for version in (3, 4, 5):
        first = client.started("again", version)
        yield f"init v{version} of the current one", client.init("again", version, first)
        yield f"init v{version} again of the current one", client.init("again", version, first)
        yield f"init v{version} of one fenced", client.init("again", version, (first[0], first[1] - 1))
        yield f"init v{version} of one to come", client.init("again", version, (first[0], first[1] + 9))
        yield f"init v{version} of another id", client.init("again", version, (first[0] + 1_000_000, first[1]))
        yield f"init v{version} of an unknown id", client.init(f"un {version}", version, (12_345_678, 4))
        yield f"init v{version} id without epoch", client.init("again", version, (first[0], -1))


def _version_1(client: Client) -> Iterator[Question]:
    """The requests that clients before 4.0 send."""
    nobody = (12_345_678, 0)
    for version in range(4):
        yield f"add v{version} unknown", client.add("nothing", nobody, version, 0)
        yield f"add v{version} empty id", client.add("", nobody, version, 0)
        identity = client.started("one", 4)
        yield f"add v{version} other id", client.add("one", nobody, version, 0)
        yield f"add v{version} old epoch", client.add("one", (identity[0], identity[1] - 1), version, 0)
        yield f"add v{version} unknown partition", client.add("one", identity, version, 0, 9)
        yield f"add v{version} unknown topic", client.add("one", identity, version, 0, topic="none")
    for version in (4, 5):
        yield f"verify v{version} nothing open", client.verify("one", identity, version, 0)
        yield f"verify v{version} unknown", client.verify("nothing", nobody, version, 0)
        yield f"verify v{version} old epoch", client.verify("one", (identity[0], identity[1] - 1), version, 0)
    for version in (3, 8, 11):
        yield f"produce v{version} unverified", client.produce("one", identity, version)
        yield f"produce v{version} without id", client.produce(None, identity, version)
        yield f"produce v{version} unknown", client.produce("nothing", nobody, version)
    for version in range(5):
        for commit in (True, False):
            yield f"end v{version} {commit} of nothing", client.end("one", identity, version, commit=commit)
            yield f"end v{version} {commit} unknown", client.end("nothing", nobody, version, commit=commit)
            yield f"end v{version} {commit} other id", client.end("one", nobody, version, commit=commit)
            yield (
                f"end v{version} {commit} old epoch",
                client.end("one", (identity[0], identity[1] - 1), version, commit=commit),
            )
            yield f"end v{version} {commit} empty id", client.end("", identity, version, commit=commit)
    for version, commit in ((0, True), (2, False), (4, True), (4, False)):
        sequence = 0
        client.started("two", 4)
        identity = client.started("two", 4)
        name = f"v{version} {commit}"
        yield f"add {name}", client.add("two", identity, 3, 0)
        yield f"add again {name}", client.add("two", identity, 3, 0)
        yield f"verify {name}", client.verify("two", identity, 5, 0, 1)
        yield f"produce {name}", client.produce("two", identity, 11, sequence=sequence)
        yield f"produce duplicate {name}", client.produce("two", identity, 11, sequence=sequence)
        yield f"produce gap {name}", client.produce("two", identity, 11, sequence=sequence + 5)
        yield f"produce other partition {name}", client.produce("two", identity, 11, partition=1)
        yield f"produce old epoch {name}", client.produce("two", (identity[0], identity[1] - 1), 11)
        yield f"describe {name}", client.describe("two", "nothing", "")
        yield f"ends {name}", _lag(client)
        yield f"end {name}", client.end("two", identity, version, commit=commit)
        yield f"end again {name}", client.end("two", identity, version, commit=commit)
        yield f"end otherwise {name}", client.end("two", identity, version, commit=not commit)
        client.stable()
        yield f"describe after {name}", client.describe("two")
        yield f"add the next {name}", client.add("two", identity, 3, 0)
        yield f"produce the next {name}", client.produce("two", identity, 11, sequence=sequence + 1)
        client.end("two", identity, version, commit=True)
        client.stable()
    # A second producer takes the place of one in the middle of a transaction.
    identity = client.started("three", 4)
    client.add("three", identity, 3, 0)
    client.produce("three", identity, 11)
    second = client.init("three", 4)
    yield "init fences", second
    yield "produce of the fenced", client.produce("three", identity, 11, sequence=1)
    yield "end of the fenced", client.end("three", identity, 4, commit=True)
    yield "end of the fenced v1", client.end("three", identity, 1, commit=True)
    yield "add of the fenced", client.add("three", identity, 3, 0)
    yield "add of the fenced v1", client.add("three", identity, 1, 0)
    client.stable()
    yield "fetch committed", client.fetch(READ_COMMITTED)
    yield "fetch", client.fetch(0)
    for version, commit in product(range(5), (True, False)):
        name = f"fenced v{version} {commit}"
        identity = client.started(name, 4)
        client.add(name, identity, 3, 0)
        yield f"init {name}", client.fence(name)
        yield f"end {name}", client.end(name, identity, version, commit=commit)


def _version_2(client: Client) -> Iterator[Question]:
    """The requests that clients from 4.0 on send: partitions add themselves, and every end bumps the epoch."""
    identity = client.started("four", 5)
    for commit in (True, False):
        yield f"end v5 {commit} of nothing", client.end("four", identity, 5, commit=commit)
    identity = client.started("four", 5)
    for turn, commit in enumerate((True, False, True)):
        name = f"v5 {commit} {turn}"
        yield f"produce {name}", client.produce("four", identity, 12)
        yield f"produce next {name}", client.produce("four", identity, 12, sequence=1)
        yield f"produce old epoch {name}", client.produce("four", (identity[0], identity[1] - 1), 12)
        yield f"describe {name}", client.describe("four")
        ended = client.end("four", identity, 5, commit=commit)
        yield f"end {name}", ended
        yield f"end again {name}", client.end("four", identity, 5, commit=commit)
        yield f"end otherwise {name}", client.end("four", identity, 5, commit=not commit)
        client.stable()
        yield f"produce late {name}", client.produce("four", identity, 12, sequence=2)
        identity = (ended.producer_id, ended.producer_epoch)
        yield f"describe after {name}", client.describe("four")
        aborted = client.end("four", identity, 5, commit=False)
        yield f"abort of nothing {name}", aborted
        yield f"abort of nothing again {name}", client.end("four", identity, 5, commit=False)
        identity = (aborted.producer_id, aborted.producer_epoch)
        yield f"commit of nothing {name}", client.end("four", identity, 5, commit=True)
    client.produce("four", identity, 12)
    yield "init v5 fences", client.init("four", 5)
    yield "produce of the fenced v12", client.produce("four", identity, 12, sequence=1)
    yield "end of the fenced v5", client.end("four", identity, 5, commit=True)
    client.stable()
    identity = client.started("five", 5)
    client.produce("five", identity, 12)
    yield "init v5 of itself in a transaction", client.init("five", 5, identity)
    client.stable()
    yield "fetch committed v2", client.fetch(READ_COMMITTED)
    yield "produce v12 unknown", client.produce("nothing", (12_345_678, 0), 12)
    yield "produce v12 of a later epoch", client.produce("five", (identity[0], identity[1] + 20), 12)
    for commit in (True, False):
        name = f"fenced v5 {commit}"
        identity = client.started(name, 5)
        client.produce(name, identity, 12)
        yield f"init {name}", client.fence(name)
        yield f"end {name}", client.end(name, identity, 5, commit=commit)
    # One that changes its version between transactions
    for first, then in product((True, False), (True, False)):
        name = f"v4 {first} v5 {then}"
        identity = client.started(name, 4)
        client.add(name, identity, 3, 0)
        client.end(name, identity, 4, commit=first)
        client.complete(name)
        yield f"end {name}", client.end(name, identity, 5, commit=then)
        yield f"end again {name}", client.end(name, identity, 4, commit=then)
        yield f"end otherwise {name}", client.end(name, identity, 4, commit=not then)
    # One that changes its version in the middle
    identity = client.started("six", 5)
    yield "add for version 2", client.add("six", identity, 3, 0)
    yield "produce v12 after add", client.produce("six", identity, 12)
    yield "end v4 after v12", client.end("six", identity, 4, commit=True)
    yield "end v4 after v12 again", client.end("six", identity, 4, commit=True)
    client.stable()
    yield "describe after the change", client.describe("six")


def _offsets(client: Client) -> Iterator[Question]:
    nobody = (12_345_678, 0)
    for version in range(5):
        yield f"add offsets v{version} unknown", client.add_offsets("nothing", nobody, version, "g")
        yield f"add offsets v{version} empty", client.add_offsets("", nobody, version, "g")
        identity = client.started("seven", 4)
        yield f"add offsets v{version} old", client.add_offsets("seven", (identity[0], identity[1] - 1), version, "g")
        yield f"add offsets v{version} empty group", client.add_offsets("seven", identity, version, "")
    for version in range(5):
        group = f"group {version}"
        identity = client.started("seven", 4)
        yield f"commit offsets v{version} unverified", client.commit_offsets("seven", identity, version, group, 3)
        yield f"add offsets v{version}", client.add_offsets("seven", identity, min(version, 4), group)
        yield f"commit offsets v{version}", client.commit_offsets("seven", identity, version, group, 3)
        yield (
            f"commit offsets v{version} old",
            client.commit_offsets("seven", (identity[0], identity[1] - 1), version, group, 3),
        )
        yield f"fetch offsets v{version} open", client.offsets(group, stable=False)
        yield f"fetch stable offsets v{version} open", client.offsets(group, stable=True)
        client.end("seven", identity, 4, commit=version != 3)
        yield f"fetch stable offsets v{version}", client.stable_offsets(group)
        yield f"fetch offsets v{version}", client.offsets(group, stable=False)
    member = {"member_id": "x", "generation_id_or_member_epoch": 1}
    identity = client.started("seven", 4)
    client.add_offsets("seven", identity, 3, "group 0")
    for version in (3, 4):
        yield (
            f"commit offsets v{version} of nobody",
            client.commit_offsets("seven", identity, version, "group 0", 5, **member),
        )
        member["member_id"] = ""
        yield (
            f"commit offsets v{version} with generation",
            client.commit_offsets("seven", identity, version, "group 0", 5, **member),
        )
        member["member_id"] = "x"
    yield "commit offsets empty group", client.commit_offsets("seven", identity, 4, "", 5)
    client.end("seven", identity, 4, commit=True)
    identity = client.started("eight", 5)
    yield "commit offsets v5", client.commit_offsets("eight", identity, 5, "group 8", 4)
    yield "fetch stable offsets v5 open", client.offsets("group 8", stable=True)
    yield "describe with offsets", client.describe("eight")
    yield "end v5 with offsets", client.end("eight", identity, 5, commit=True)
    yield "fetch stable offsets v5", client.stable_offsets("group 8")


def _markers(client: Client) -> Iterator[Question]:
    for version in (1, 2):
        name = f"nine {version}"
        client.started(name, 4)
        identity = client.started(name, 4)
        client.add(name, identity, 3, 0)
        client.produce(name, identity, 11)
        options = {"transaction_version": 0} if version == 1 else {"transaction_version": 2}
        yield (
            f"marker v{version} old epoch",
            client.markers((identity[0], identity[1] - 1), version, commit=True, **options),
        )
        yield f"marker v{version} same epoch", client.markers(identity, version, commit=False, **options)
        yield f"ends after marker v{version}", _lag(client)
        yield (
            f"marker v{version} next epoch",
            client.markers((identity[0], identity[1] + 1), version, commit=False, **options),
        )
        yield (
            f"marker v{version} again",
            client.markers((identity[0], identity[1] + 1), version, commit=False, **options),
        )
        yield (
            f"marker v{version} unknown producer",
            client.markers((77_777_777 + version, 0), version, commit=True, **options),
        )
        yield (
            f"marker v{version} old coordinator",
            client.markers((identity[0], identity[1] + 2), version, commit=True, epoch=-1, **options),
        )


def _looking(client: Client) -> Iterator[Question]:
    client.stable()
    yield "describe", client.describe("one", "two", "four", "nothing", "")
    yield "list", client.list()
    yield "list Empty", client.list(state_filters=["Empty"])
    yield "list states", client.list(state_filters=["CompleteCommit", "Nonsense", "CompleteAbort"])
    yield "list producers", client.list(producer_id_filters=[12_345_678])
    yield "list long ones", client.list(duration_filter=1 << 40)
    yield "list by pattern", client.list(transactional_id_pattern="t.*")
    yield "list by empty pattern", client.list(transactional_id_pattern="")
    yield "list by bad pattern", client.list(transactional_id_pattern="(")
    yield "producers", client.producers()


def _lag(client: Client) -> int:
    """Return by how much the last stable offset is lower than the high watermark."""
    high_watermark, last_stable = client.ends()
    return high_watermark - last_stable
