"""Processes that write, read and commit without pause, and record their operations and the answers.

They do what good clients do: an idempotent producer repeats a batch until it has its answer, keeps several in flight,
and never changes their order; a transactional one asks again for its outcome; a member of a group that was fenced
starts again. And they do what bad ones do: a producer continues after its successor has started, a member commits after
its group has gone on without it. Such zombies must get nothing done.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.protocol.messages.end_txn import EndTxnRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.protocol.records.batch import Record, batches, encode_batch, records
from tests.faults.history.events import Commit, Committed, History, Outcome, Place, Poll, Send, Transaction

TOPICS = {"plain": 2, "source": 1, "sink": 2}
PLACES: list[Place] = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
SOURCE: Place = ("source", 0)
GROUP = "workers"
COMMITTED, UNCOMMITTED = 1, 0
PRODUCE, INIT, END, TXN_COMMIT = 12, 5, 5, 5
FETCH, JOIN, SYNC, OFFSET_COMMIT, OFFSET_FETCH = 12, 9, 5, 8, 8
READ_BYTES = 1 << 20
TRANSACTION_TIMEOUT_MS = 60_000
PAUSE_S = 0.002
LIMIT = 1 << 20

TRY_AGAIN = {
    int(code)
    for code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
    )
}


class Gone(Exception):
    """The connection broke; nobody knows whether the request was carried out."""


class Node(Protocol):
    """The broker."""

    async def request(self, request: Any, version: int) -> Any: ...


class Stopped(Exception):
    """The workload is over."""


class Workload:
    """The state that the processes share."""

    def __init__(self, node: Node, rng: random.Random, patience_s: float = 20.0) -> None:
        self.node = node
        self.rng = rng
        self.patience_s = patience_s
        self.history = History()
        self.stopping = False
        self._numbers = itertools.count()

    def now(self) -> float:
        return time.monotonic()

    def value(self, process: str) -> bytes:
        return f"{process} {next(self._numbers)}".encode()

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.random() * PAUSE_S)

    async def ask(self, request: Any, version: int, code_of: Callable[[Any], int], *, last: bool = False) -> Any:
        """The answer, asked for again until it is neither lost nor "try again". Stopped when the time is over."""
        patience = self.now() + self.patience_s
        while True:
            if self.now() > patience or (self.stopping and not last):
                raise Stopped
            try:
                answer = await self.node.request(request, version)
            except Gone:
                await asyncio.sleep(PAUSE_S)
                continue
            if code_of(answer) not in TRY_AGAIN:
                return answer
            await asyncio.sleep(PAUSE_S)

    async def prepare(self) -> None:
        """Topics, and those of the coordinators."""
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in TOPICS.items()
        ]
        made = {int(ErrorCode.NONE), int(ErrorCode.TOPIC_ALREADY_EXISTS)}
        answer = await self.ask(CreateTopicsRequest(topics=topics, timeout_ms=5000), 7, lambda answer: 0)
        assert {topic.error_code for topic in answer.topics} <= made
        for kind in (0, 1):
            asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            await self.ask(asked, 4, lambda answer: int(answer.coordinators[0].error_code))

    # -- reading ------------------------------------------------------------------------------------------------

    async def fetch(self, place: Place, offset: int, level: int, *, last: bool = False) -> tuple[Any, int]:
        """Records that count at this level, as a client library gives them, and the offset to go on with."""
        topic, index = place
        row = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=READ_BYTES,
            isolation_level=level,
            topics=[FetchTopic(topic=topic, partitions=[row])],
        )

        def code_of(answer: Any) -> int:
            return int(answer.responses[0].partitions[0].error_code)

        answer = await self.ask(request, FETCH, code_of, last=last)
        part = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return [], 0  # the log has become shorter: begin again, as auto.offset.reset makes a client do
        assert part.error_code == 0, (place, offset, part.error_code)
        aborted = [(row.first_offset, row.producer_id) for row in part.aborted_transactions or ()]
        return visible(bytes(part.records or b""), offset, sorted(aborted) if level == COMMITTED else [])

    async def read_all(self, place: Place, level: int) -> list[tuple[int, bytes]]:
        """A partition from its beginning to where it can be read."""
        found: list[tuple[int, bytes]] = []
        position = 0
        while True:
            more, following = await self.fetch(place, position, level, last=True)
            if following == position:
                return found
            found += more
            position = following

    async def finish(self) -> None:
        """After everybody has stopped, end the open transactions, and read everything."""
        for name in {transaction.process for transaction in self.history.transactions.values()}:
            await self.init(name.partition("#")[0], last=True)
        for place in PLACES:
            await self._settled(place)
            self.history.final[place] = await self.read_all(place, COMMITTED)
            self.history.uncommitted[place] = await self.read_all(place, UNCOMMITTED)

    async def _settled(self, place: Place) -> None:
        patience = self.now() + self.patience_s
        while self.now() < patience:
            topic, index = place
            request = FetchRequest(
                max_wait_ms=0,
                max_bytes=1,
                topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition=index, partition_max_bytes=1)])],
            )

            def code_of(answer: Any) -> int:
                return int(answer.responses[0].partitions[0].error_code)

            part = (await self.ask(request, FETCH, code_of, last=True)).responses[0].partitions[0]
            if part.last_stable_offset == part.high_watermark:
                return
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"{place}: a transaction stays open for ever")

    # -- writing ------------------------------------------------------------------------------------------------

    async def init(self, name: str | None, *, last: bool = False) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        answer = await self.ask(request, INIT, lambda answer: int(answer.error_code), last=last)
        assert answer.error_code == 0, answer
        return answer.producer_id, answer.producer_epoch


def visible(data: bytes, offset: int, aborted: list[tuple[int, int]]) -> tuple[list[tuple[int, bytes]], int]:
    """The records of a fetch from `offset` on without control records and aborted ones, as KIP-98 has clients do it."""
    found: list[tuple[int, bytes]] = []
    open_aborted: set[int] = set()
    for position, header in batches(data):
        if header.last_offset < offset:
            continue
        while aborted and aborted[0][0] <= header.last_offset:
            open_aborted.add(aborted.pop(0)[1])
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            found += [
                (record.offset, record.value or b"")
                for record in records(data, header, LIMIT, position)
                if record.offset >= offset
            ]
        offset = header.next_offset
    return found, offset


class Producer:
    """Sequences and sending of one producer, plain or transactional."""

    def __init__(self, shared: Workload, process: str, name: str | None = None) -> None:
        self.shared = shared
        self.process = process
        self.name = name
        self.identity = (-1, -1)
        self.sequences: dict[Place, int] = {}

    async def start(self) -> None:
        self.identity = await self.shared.init(self.name)
        self.sequences = {}

    async def send(
        self,
        place: Place,
        value: bytes,
        transaction: str | None = None,
        *,
        source: bytes | None = None,
        late: bool = False,
    ) -> Send:
        """Write one value; repeated until it is known whether it is there. A `late` one is overtaken on its way."""
        shared = self.shared
        topic, index = place
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + 1
        batch = encode_batch(
            [Record(0, int(time.time() * 1000), None, value, ())],
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=sequence,
            transactional=transaction is not None,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=bytes(batch))])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[data])
        sent = Send(self.process, place, value, shared.now(), transaction=transaction, source=source)
        shared.history.sends.append(sent)
        if late and sequence > 0:  # the first batch of a producer may be any, to a broker that does not know it
            await asyncio.sleep(PAUSE_S)

        def code_of(answer: Any) -> int:
            code = int(answer.responses[0].partition_responses[0].error_code)
            return int(ErrorCode.NOT_ENOUGH_REPLICAS) if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else code

        answer = (await shared.ask(request, PRODUCE, code_of)).responses[0].partition_responses[0]
        sent.end = shared.now()
        sent.outcome = Outcome.FAILED if answer.error_code else Outcome.OK
        sent.offset = answer.base_offset if not answer.error_code else None
        return sent


async def plain_writer(shared: Workload, process: str) -> None:
    """An idempotent producer with two batches in flight; the order is that of their sequences."""
    producer = Producer(shared, process)
    await producer.start()
    while True:
        place = shared.rng.choice([("plain", 0), ("plain", 1), SOURCE])
        late = shared.rng.random() < 0.3
        flights = [producer.send(place, shared.value(process), late=late)]
        if producer.sequences.get(place):
            flights.append(producer.send(place, shared.value(process)))
        await asyncio.gather(*flights)
        await shared.pause()


async def transactional_writer(shared: Workload, process: str) -> None:
    """Transactions over several partitions. At times a successor takes its place, and it goes on as a zombie."""
    name = process
    producer = Producer(shared, f"{process}#0", name)
    await producer.start()
    for number in itertools.count(1):
        key = f"{process} T{number}"
        transaction = shared.history.transactions[key] = Transaction(key, producer.process)
        transaction.commits = shared.rng.random() < 0.6
        count = shared.rng.choice((1, 2, 4))
        places = [shared.rng.choice(PLACES) for _ in range(count)]
        fenced = False
        for place in places:
            sent = await producer.send(place, shared.value(process), key)
            fenced = fenced or sent.outcome is Outcome.FAILED
            await shared.pause()
        if shared.rng.random() < 0.2:
            zombie, producer = producer, Producer(shared, f"{process}#{number}", name)
            await producer.start()
            await haunt(shared, zombie, shared.rng.choice(PLACES), transaction)
            continue
        await end(shared, producer, transaction, fenced=fenced)
        if transaction.outcome is not Outcome.OK or fenced:
            await producer.start()


async def haunt(shared: Workload, zombie: Producer, place: Place, transaction: Transaction) -> None:
    """Write on, and commit, as a producer does that does not know yet that it was fenced."""
    transaction.commits = False  # its successor has aborted it
    transaction.start = transaction.end = shared.now()
    transaction.outcome = Outcome.OK
    key = f"{transaction.key} zombie"
    late = shared.history.transactions[key] = Transaction(key, zombie.process, commits=True, outcome=Outcome.FAILED)
    await zombie.send(place, shared.value("zombie"), key)
    request = EndTxnRequest(
        transactional_id=zombie.name, producer_id=zombie.identity[0], producer_epoch=zombie.identity[1], committed=True
    )
    late.start = shared.now()
    answer = await shared.ask(request, END, lambda answer: int(answer.error_code))
    late.end = shared.now()
    if answer.error_code == 0:
        late.outcome = Outcome.UNKNOWN


async def end(shared: Workload, producer: Producer, transaction: Transaction, *, fenced: bool = False) -> None:
    """Commit or abort, and ask until the outcome is known; the producer continues in the epoch of the answer."""
    if fenced:
        transaction.commits = False
    request = EndTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.identity[0],
        producer_epoch=producer.identity[1],
        committed=transaction.commits,
    )
    transaction.start = shared.now()
    answer = await shared.ask(request, END, lambda answer: int(answer.error_code))
    transaction.end = shared.now()
    if answer.error_code == 0:
        transaction.outcome = Outcome.OK
        producer.identity = (answer.producer_id, answer.producer_epoch)
        producer.sequences = {}
    elif transaction.commits:
        transaction.outcome = Outcome.FAILED
    else:
        transaction.outcome = Outcome.OK  # uncommitted ones are aborted


async def reader(shared: Workload, process: str, level: int) -> None:
    """Read one partition after the other, each from its last position; at times begin again."""
    positions: dict[Place, int] = dict.fromkeys(PLACES, 0)
    session = 0
    while True:
        if shared.rng.random() < 0.01:
            session += 1
            positions = dict.fromkeys(PLACES, 0)
        place = shared.rng.choice(PLACES)
        start = shared.now()
        found, following = await shared.fetch(place, positions[place], level)
        shared.history.polls.append(
            Poll(process, session, place, positions[place], found, start, shared.now(), level == COMMITTED)
        )
        if following < positions[place]:
            session += 1
            positions = dict.fromkeys(PLACES, 0)
        positions[place] = following
        await shared.pause()


class Member:
    """One generation of the only member of a group."""

    def __init__(self, shared: Workload, process: str) -> None:
        self.shared = shared
        self.process = process
        self.member_id = ""
        self.generation = -1

    async def join(self) -> None:
        """Take the group over: a new generation makes its former members leave."""
        shared = self.shared
        while True:
            request = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=300_000,
                rebalance_timeout_ms=20,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\6source\xff\xff\xff\xff")],
            )
            joined = await shared.ask(request, JOIN, lambda answer: int(answer.error_code))
            self.member_id = joined.member_id if joined.error_code != ErrorCode.UNKNOWN_MEMBER_ID else ""
            if joined.error_code:
                continue
            rows = [
                SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"all") for member in joined.members
            ]
            sync = SyncGroupRequest(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=rows,
            )
            synced = await shared.ask(sync, SYNC, lambda answer: int(answer.error_code))
            if not synced.error_code:
                self.generation = joined.generation_id
                return

    async def position(self) -> int:
        """Return the position of the group, once that is certain."""
        return await committed(self.shared, self.process)

    async def commit(self, offset: int) -> Commit:
        """Store a position."""
        shared = self.shared
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=SOURCE[0], partitions=[row])],
        )
        made = Commit(self.process, GROUP, SOURCE, offset, shared.now(), generation=self.generation)
        shared.history.commits.append(made)

        def code_of(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        answer = await shared.ask(request, OFFSET_COMMIT, code_of)
        made.end = shared.now()
        made.outcome = Outcome.FAILED if code_of(answer) else Outcome.OK
        return made


async def committed(shared: Workload, process: str) -> int:
    """Return the stable position of the group."""
    rows = [OffsetFetchRequestTopics(name=SOURCE[0], partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=rows)], require_stable=True)

    def code_of(answer: Any) -> int:
        group = answer.groups[0]
        return int(group.error_code or group.topics[0].partitions[0].error_code)

    start = shared.now()
    answer = await shared.ask(request, OFFSET_FETCH, code_of)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    shared.history.committed.append(Committed(process, GROUP, SOURCE, offset, start, shared.now()))
    return offset


async def transformer(shared: Workload, process: str) -> None:
    """Consume, transform, produce: each value of the source becomes one of the sink, its position in the same
    transaction. It takes the group over at times, as after a rebalance; its former self goes on as a zombie."""
    member = Member(shared, process)
    producer = Producer(shared, f"{process}#0", process)
    await member.join()
    await producer.start()
    position = max(0, await member.position())
    attempts = itertools.count()
    for number in itertools.count(1):
        found, following = await shared.fetch(SOURCE, position, COMMITTED)
        if not found:
            await shared.pause()
            position = following
            continue
        key = f"{process} T{number}"
        transaction = shared.history.transactions[key] = Transaction(key, producer.process, commits=True)
        failed = False
        for _, value in found[:5]:
            place = ("sink", shared.rng.randrange(TOPICS["sink"]))
            text = b"%s <- %s" % (str(next(attempts)).encode(), value)
            sent = await producer.send(place, text, key, source=value)
            failed = failed or sent.outcome is Outcome.FAILED
        following = found[:5][-1][0] + 1
        if not failed:
            failed = not await commit_in_transaction(shared, producer, member, following, key)
        if shared.rng.random() < 0.2:
            transaction.commits = False
        await end(shared, producer, transaction, fenced=failed)
        if transaction.is_committed:
            position = following
            if shared.rng.random() < 0.1:
                position = await take_over(shared, process, member)
        else:
            await producer.start()
            await member.join()
            position = max(0, await member.position())


async def take_over(shared: Workload, process: str, member: Member) -> int:
    """Let the member join again, in a new generation; then its former generation commits an old offset."""
    old = Member(shared, f"{process} zombie")
    old.member_id, old.generation = member.member_id, member.generation
    await member.join()
    position = max(0, await member.position())
    if member.generation > old.generation:
        await member.commit(position)
        await old.commit(max(0, position - 1))
    return max(0, await member.position())


async def observer(shared: Workload, process: str) -> None:
    """Ask for the position of the group all the time."""
    while True:
        await committed(shared, process)
        await shared.pause()


Process = Callable[[Workload, str], Awaitable[None]]

PROCESSES: dict[str, Process] = {
    "plain-1": plain_writer,
    "plain-2": plain_writer,
    "tx-1": transactional_writer,
    "tx-2": transactional_writer,
    "worker": transformer,
    "observer": observer,
    "committed": lambda shared, process: reader(shared, process, COMMITTED),
    "uncommitted": lambda shared, process: reader(shared, process, UNCOMMITTED),
}


async def run(
    shared: Workload, duration_s: float, faults: Callable[[], Awaitable[None]], *, strict: bool = True
) -> History:
    """Run all processes and the faults for so long, then the end. A broker with a bug, which is not `strict`, gives as
    much of a history as can be had."""
    await shared.prepare()
    tasks = [asyncio.ensure_future(process(shared, name)) for name, process in PROCESSES.items()]
    until = shared.now() + duration_s
    while shared.now() < until:
        await faults()
        for task in tasks:
            if strict and task.done():
                task.result()
    shared.stopping = True
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if strict and not isinstance(outcome, Stopped):
            raise outcome if isinstance(outcome, BaseException) else AssertionError("a process ended by itself")
    with contextlib.suppress(*(() if strict else (Stopped, AssertionError))):
        await shared.finish()
    return shared.history


async def commit_in_transaction(shared: Workload, producer: Producer, member: Member, offset: int, key: str) -> bool:
    """Store a position as part of the transaction; return whether the broker accepted it."""
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=GROUP,
        producer_id=producer.identity[0],
        producer_epoch=producer.identity[1],
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[TxnOffsetCommitRequestTopic(name=SOURCE[0], partitions=[row])],
    )
    made = Commit(member.process, GROUP, SOURCE, offset, shared.now(), transaction=key, generation=member.generation)
    shared.history.commits.append(made)

    def code_of(answer: Any) -> int:
        return int(answer.topics[0].partitions[0].error_code)

    answer = await shared.ask(request, TXN_COMMIT, code_of)
    made.end = shared.now()
    made.outcome = Outcome.FAILED if code_of(answer) else Outcome.OK
    return made.outcome is Outcome.OK
