"""Measure the worst latency for another client during the broker's own jobs, and the longest callback of the loop.

    python -m bench pauses_background [--quick]

The second half of `bench pauses`. A broker with 10,000 partitions and 1,000 groups runs in this process on asyncio's
own loop. Its callbacks are timed in CPU seconds of the loop's thread, which other processes change less than elapsed
time. The other client is the `Probe` of the first half; its latency includes the time that threads of the broker, and
other processes, take from the loop. Each job is started by hand, once everything that it can find is there. `--quick`
is a tenth of everything.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from asyncio.events import Handle
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.pauses import Probe
from klamm.broker.apis.dispatcher import Dispatcher
from klamm.broker.background.compaction import Failed
from klamm.broker.background.scheduler import Scheduler, repeat
from klamm.broker.broker import Broker
from klamm.broker.controller.configs import ConfigUpdate, KeyUpdate, Op, ResourceType
from klamm.broker.controller.topics import NewTopic, TopicKey
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from klamm.broker.coordinator.group.consumer.consumer_member import ConsumerMember
from klamm.broker.coordinator.group.loader import Replay as GroupReplay
from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.transaction.loader import Replay as TransactionReplay
from klamm.broker.coordinator.transaction.states import State
from klamm.broker.coordinator.transaction.transaction import Markers, Transaction
from klamm.broker.memory import freeze_collector
from klamm.broker.metadata.response_cache import MetadataResponseCache
from klamm.broker.metrics.exposition import Exposition
from klamm.broker.network.limits import NetworkLimits
from klamm.broker.network.network import Network
from klamm.broker.server import Server
from klamm.broker.turns import in_turns
from klamm.config.broker_config import BrokerConfig
from klamm.protocol.records.batch import Record, encode_batch

HEAD = "| job | worst latency, ms | longest callback, ms of CPU | it took |\n|---|---|---|---|"
PARTITIONS = 10  # of a topic
LATEST_VERSION = 12
DAY_MS = 24 * 3600 * 1000
Work = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Sizes:
    topics: int
    groups: int
    members: int
    offsets: int
    producers: int
    transactional_ids: int


FULL = Sizes(topics=1000, groups=1000, members=1000, offsets=100_000, producers=10_000, transactional_ids=1000)
QUICK = Sizes(topics=100, groups=100, members=100, offsets=10_000, producers=1000, transactional_ids=100)


class Longest:
    """The longest callback of the loop since `forget`."""

    def __init__(self) -> None:
        self.cpu_s = 0.0

    def forget(self) -> None:
        self.cpu_s = 0.0

    @contextmanager
    def timing(self) -> Iterator[None]:
        run = Handle._run

        def timed(handle: Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.cpu_s = max(self.cpu_s, time.thread_time() - began)

        Handle._run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[method-assign]


class Background:
    """The jobs, in an order in which each finds what it needs."""

    def __init__(self, server: Server, broker: Broker, probe: Probe, longest: Longest, sizes: Sizes) -> None:
        self._server = server
        self._broker = broker
        self._probe = probe
        self._longest = longest
        self._sizes = sizes
        self._names = [f"t{number}" for number in range(sizes.topics)]
        self._now_ms = int(time.time() * 1000)

    async def measure(self, name: str, work: Work) -> None:
        watch = self._probe.watch()
        pause = await asyncio.to_thread(watch.__enter__)
        self._longest.forget()
        began = time.perf_counter()
        await work()
        await asyncio.sleep(0.02)
        took, cpu_s = time.perf_counter() - began, self._longest.cpu_s
        await asyncio.to_thread(watch.__exit__, None, None, None)
        print(f"| {name} | {pause.worst_ms:.1f} | {cpu_s * 1000:.1f} | {took:.2f} s |", flush=True)

    async def run(self, disk: ThreadPoolExecutor) -> None:
        scheduler = {job.name: job for job in Scheduler(self._broker, disk).jobs()}
        young = asyncio.create_task(repeat(scheduler["young objects"]))
        try:
            await self.run_all({name: job.run for name, job in scheduler.items() if name != "young objects"})
        finally:
            young.cancel()

    async def run_all(self, jobs: dict[str, Work]) -> None:
        controller, sizes = self._broker.controller, self._sizes
        every = f"{sizes.topics * PARTITIONS:,}"
        new = [NewTopic(name, PARTITIONS, 1) for name in self._names]
        await self.measure(f"CreateTopics, {every} partitions", lambda: controller.create_topics(new))
        await self.append_to_all()
        for name, run in jobs.items():
            await self.measure(name, run)
        await self.configured(every, jobs)
        await self.scraped(every)
        await self.groups()
        await self.assigned()
        await self.transactions()
        await self.producers(jobs["idle producers"])
        await self.deleted(every)

    async def append_to_all(self) -> None:
        batch = encode_batch([Record(0, self._now_ms, b"k", bytes(50), ())])
        async for partition in in_turns(self._broker.partitions):
            if partition.topic in self._names:
                partition.append_coordinator_records(bytearray(batch), now_ms=self._now_ms)

    async def configured(self, every: str, jobs: dict[str, Work]) -> None:
        """Measure configs of all topics, and the jobs that follow from them."""
        await self.measure("AlterConfigs of all topics", self.alter("flush.ms", "1"))
        await self.append_to_all()
        await asyncio.sleep(0.1)
        await self.measure(f"flushes of {every} partitions", jobs["flushes"])
        await self.alter("flush.ms", "9223372036854775807")()
        await self.alter("segment.ms", "1")()
        await self.append_to_all()
        await asyncio.sleep(0.01)
        await self.append_to_all()
        await self.measure(f"flushes of {every} rolled segments", jobs["flushes of rolled segments"])
        await self.measure("checkpoints of all of them", jobs["checkpoints"])
        await self.alter("cleanup.policy", "compact")()
        await self.alter("min.cleanable.dirty.ratio", "0")()
        await self.append_to_all()

        async def fail(*_: object) -> None:
            raise Failed("only the search is measured")

        async def search() -> None:
            worker, self._broker.compaction._worker = self._broker.compaction._worker, fail  # type: ignore[assignment]
            round_ = asyncio.ensure_future(self._broker.compaction.round())
            await asyncio.wait([round_], timeout=2)
            round_.cancel()
            await asyncio.wait([round_])
            self._broker.compaction._worker = worker

        await self.measure(f"search among {every} logs to compact, for 2 s", search)
        await self.alter("cleanup.policy", "delete")()
        await self.alter("segment.ms", str(7 * DAY_MS))()
        await self.alter("retention.ms", "1")()
        await self.measure(f"retention in {every} partitions", jobs["retention"])
        await self.measure("deleted files", jobs["deleted files"])
        whole = ConfigUpdate(ResourceType.BROKER, "", [KeyUpdate("log.retention.bytes", Op.SET, "100000000")])
        await self.measure("the config of the broker", lambda: self._broker.controller.update_configs([whole]))

    def alter(self, key: str, value: str) -> Work:
        updates = [ConfigUpdate(ResourceType.TOPIC, name, [KeyUpdate(key, Op.SET, value)]) for name in self._names]
        return lambda: self._broker.controller.update_configs(updates)

    async def scraped(self, every: str) -> None:
        exposition = Exposition(self._server.metrics)

        async def scrape() -> None:
            async for _ in exposition.render():
                await asyncio.sleep(0)

        await self.measure("the first scrape of the metrics", scrape)
        await self.measure("another scrape", scrape)
        answers = MetadataResponseCache(self._broker.partitions)

        async def describe() -> None:
            answers.all(self._broker.controller.image.topics, LATEST_VERSION, 0)

        await self.measure(f"Metadata of {every} partitions, the first time", describe)

    async def groups(self) -> None:
        """Measure expiry, loading, and deleted topics."""
        sizes, groups = self._sizes, self._broker.groups
        await groups.topic.find()
        await groups.topic.loaded()
        each = sizes.offsets // sizes.groups
        self._commit(each, self._now_ms - 10 * DAY_MS)
        title = f"expiry of {sizes.offsets:,} offsets in {sizes.groups:,} groups"
        await self.measure(title, groups.expiry.expire)
        self._commit(1, self._now_ms)
        for number in range(6 * sizes.groups):
            groups.pending.add(0, 7, ("pending", "t0", number), CommittedOffset(1))
        await self.measure(
            f"expiry of {sizes.groups:,} groups beside {6 * sizes.groups:,} pending offsets", groups.expiry.expire
        )
        groups.pending.clear()
        replay = GroupReplay("__consumer_offsets-3", 3, 1 << 20)
        for number in range(sizes.offsets):
            key = (f"h{number % sizes.groups}", self._names[number % len(self._names)], number)
            replay.offsets[key] = CommittedOffset(5, commit_timestamp_ms=self._now_ms)
            replay.pending.add(3, 9, key, CommittedOffset(6))
        title = f"loading of {sizes.offsets:,} offsets, all pending, too"
        await self.measure(title, lambda: groups.take(3, replay))

        async def end() -> None:
            groups.commits.transaction_ended(3, 9, 0, commit=True)
            await asyncio.gather(*groups.runtime.tasks._tasks)

        await self.measure(f"commit of a transaction with {sizes.offsets:,} offsets", end)
        gone = [TopicKey(name) for name in self._names[: len(self._names) // 10]]
        await self.measure(
            f"DeleteTopics, {len(gone):,} of the topics with these offsets",
            lambda: self._broker.controller.delete_topics(gone),
        )
        self._names = self._names[len(gone) :]

    def _commit(self, each: int, at_ms: int) -> None:
        groups = self._broker.groups
        for number in range(self._sizes.groups):
            for index in range(each):
                committed = CommittedOffset(5, commit_timestamp_ms=at_ms)
                groups.offsets.put(f"g{number}", self._names[index], 0, committed)
            groups.classic.simple(f"g{number}", at_ms)

    async def assigned(self) -> None:
        """Measure one group of many members with unequal subscriptions, and many groups with expressions."""
        sizes, consumers = self._sizes, self._broker.groups.consumers
        dice = random.Random(1)
        for assignor in ("uniform", "range"):
            group = ConsumerGroup(f"large-{assignor}", assignor)
            for number in range(sizes.members):
                names = frozenset(dice.sample(self._names, len(self._names) // 10))
                group.put(ConsumerMember(f"m{number}", topic_names=names, rebalance_timeout_ms=60_000))
            group.assignment_epoch, group.epoch = 1, 2
            consumers.take(group, self._broker.groups.now())
            await self.measure(
                f"{assignor} assignment, {sizes.members:,} members", lambda group=group: self._beat(group)
            )
        for number in range(sizes.groups):
            group = ConsumerGroup(f"c{number}", "uniform")
            for index in range(10):
                group.put(ConsumerMember(f"m{index}", topic_names=frozenset(self._names[:50]), topic_regex="t[5-7].*"))
            group.set_regex("t[5-7].*", ResolvedRegex(frozenset(self._names[500:800]), 1, self._now_ms))
            consumers.take(group, self._broker.groups.now())
        new = [NewTopic(f"n{number}", 1, 1) for number in range(100)]
        title = f"CreateTopics, 100 topics, {sizes.groups:,} groups look"
        await self.measure(title, lambda: self._broker.controller.create_topics(new))
        many = ConsumerGroup("expressions", "uniform")
        for number in range(sizes.members):
            many.put(ConsumerMember(f"m{number}", topic_regex=f"t.*{number}", rebalance_timeout_ms=60_000))
        many.stale, many.assignment_epoch = True, 1
        consumers.take(many, self._broker.groups.now())
        await self.measure(f"a heartbeat in a group with {sizes.members:,} expressions", lambda: self._beat(many))

    async def _beat(self, group: ConsumerGroup) -> None:
        """Run everything that a heartbeat starts, to its end."""
        groups = self._broker.groups
        change, member = groups.consumers.change(group), group.members["m0"]
        groups.consumers.reconciler.advance(change, member, member, None, groups.now())
        groups.consumers.commit(change, lambda code: None, groups.now())
        await asyncio.gather(*groups.runtime.tasks._tasks)

    async def transactions(self) -> None:
        sizes, transactions = self._sizes, self._broker.transactions
        await transactions.topic.find()
        await transactions.topic.loaded()
        every = [(name, index) for name in self._names for index in range(PARTITIONS)]

        async def mark() -> None:
            written = asyncio.Event()
            markers = Markers("x", 5, 0, commit=True, version=2, partitions=frozenset(every))
            transactions.write_markers(markers, lambda unmarked, now: written.set(), transactions.now())
            await written.wait()

        await self.measure(f"markers of one transaction to {len(every):,} partitions", mark)
        count = sizes.transactional_ids
        for state, partitions in ((State.PREPARE_COMMIT, 10), (State.EMPTY, 0)):
            replay = TransactionReplay("__transaction_state-0", 1 << 20)
            for number in range(count):
                name = f"{state.value}-{number}"
                some = frozenset(every[number * partitions : (number + 1) * partitions])
                replay.transactions[name] = Transaction(
                    name,
                    producer_id=10_000 + number,
                    producer_epoch=0,
                    timeout_ms=60_000,
                    state=state,
                    started_ms=1,
                    updated_ms=1,
                    partitions=some,
                )
            title = f"loading of {count:,} transactional ids, {state.value}"
            await self.measure(title, lambda replay=replay: transactions.take(0, replay))

        async def expire() -> None:
            while len(transactions.state_machine) > count:  # those that have just ended count as used
                transactions.expire(transactions.now())
                await asyncio.sleep(0)

        await self.measure(f"expiry of {count:,} transactional ids", expire)

    async def producers(self, expire: Work) -> None:
        partition = self._broker.partitions.get_partition(self._names[0], 0)
        assert partition is not None and partition.log is not None
        for number in range(self._sizes.producers):
            record = Record(0, self._now_ms, b"k", b"v", ())
            batch = encode_batch([record], producer_id=number, producer_epoch=0, base_sequence=0)
            partition.append_coordinator_records(bytearray(batch), now_ms=self._now_ms)
        partition.log.producers.expiration_ms = -DAY_MS
        await self.measure(f"expiry of {self._sizes.producers:,} producers of a partition", expire)

    async def deleted(self, every: str) -> None:
        keys = [TopicKey(name) for name in self._names]
        await self.measure("DeleteTopics, all others", lambda: self._broker.controller.delete_topics(keys))
        count = self._sizes.topics * PARTITIONS
        one = [NewTopic("one", count, 1)]
        await self.measure(f"CreateTopics, 1 x {every}", lambda: self._broker.controller.create_topics(one))
        log_dir = self._broker.partitions.logs.log_dirs[0]

        async def fail() -> None:
            log_dir.fail("on purpose")

        await self.measure(f"a log directory with {every} partitions fails", fail)


async def serve(server: Server, sizes: Sizes) -> None:
    broker = server.wire()
    network = Network(Dispatcher(broker), NetworkLimits.from_config(broker.config), clock=broker.clock)
    (address,) = server._bind(network)
    for listener in network.listeners:
        listener.start()
    broker.groups.start()
    broker.transactions.start()
    freeze_collector()
    longest = Longest()
    with (
        Probe(int(address.rpartition(":")[2])) as probe,
        ThreadPoolExecutor(1) as disk,
        longest.timing(),
    ):
        print(HEAD)
        await Background(server, broker, probe, longest, sizes).run(disk)
    network.close()
    broker.complete_delayed_fetches()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    options, _ = parser.parse_known_args()  # `bench pauses` has others
    logging.basicConfig(level=logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        config = {
            "log.dirs": str(Path(directory) / "data"),
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "klamm.metrics.listener": "none",
            "log.cleaner.threads": "1",
        }
        server = Server(BrokerConfig(config))
        server.open()
        asyncio.run(serve(server, QUICK if options.quick else FULL))
        server.crash()


if __name__ == "__main__":
    sys.exit(main())
