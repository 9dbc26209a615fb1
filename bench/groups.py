"""Measure many idle groups, beside Apache Kafka 4.4: members heartbeat and commit. Prints a Markdown table.

    python -m bench groups [--groups 500] [--seconds 120] [--quick]

Each group has ten members of the classic protocol, each on its own connection, with the intervals of the Java consumer:
a heartbeat every 3 s, a commit of the member's partition every 5 s. The members live in this process and send bytes
that were encoded once; its own share of a core is reported, to show that it is not the limit. Besides the latencies of
commits and heartbeats, the table has the broker's CPU seconds meanwhile, its resident memory at the end, and the time
until all groups were stable.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.measure import KAFKA_HEAP, Table, Target
from klamm.client.asynchronous import AsyncNodeClient
from klamm.client.blocking import NodeClient
from klamm.client.exchange import Exchange
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.heartbeat import HeartbeatRequest
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.clients.raw import create
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

MEMBERS = 10
TOPIC = "worked"
SESSION_MS = 300_000  # no heartbeats until all groups are stable
HEARTBEAT_S = 3.0
COMMIT_S = 5.0
WARM_UP_S = 10.0
JOINING_GROUPS = 100  # at a time
JOIN_TIMEOUT_S = 60.0
TICK_S = 0.01
CONFIG = {"group.initial.rebalance.delay.ms": "3000"}  # the default; one generation for each group
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
JOIN_VERSION = 5
SYNC_VERSION = HEARTBEAT_VERSION = 3
COMMIT_VERSION = 7


@contextmanager
def klamm(directory: Path) -> Iterator[Target]:
    with BrokerProcess(directory / "klamm", CONFIG) as broker:
        yield Target("klamm", broker.host, broker.port, broker.pid)


@contextmanager
def kafka(directory: Path) -> Iterator[Target]:
    with apache_kafka(directory / "kafka", CONFIG, heap=KAFKA_HEAP) as broker:
        yield Target("kafka", "127.0.0.1", broker.port, broker.pid)


@dataclass(slots=True)
class Latencies:
    """The seconds of each response, and the number of errors of each kind."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def percentile_us(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e6


class Member:
    """One connection; after `join` its frames are ready."""

    def __init__(self, target: Target, group: str, index: int) -> None:
        self._client = AsyncNodeClient(target.host, target.port, negotiate=False)
        self._group = group
        self._index = index
        self.heartbeat = b""
        self.commit = b""

    async def join(self) -> None:
        client = self._client
        await client.connect()
        member_id = ""
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            joined = await client.request(request, JOIN_VERSION, timeout_s=JOIN_TIMEOUT_S)
            if joined.error_code in NOT_YET:
                await asyncio.sleep(0.1)
                continue
            member_id = joined.member_id
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        assert joined.error_code == 0, joined
        assignments = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"") for one in joined.members]
        sync = SyncGroupRequest(
            group_id=self._group, generation_id=joined.generation_id, member_id=member_id, assignments=assignments
        )
        synced = await client.request(sync, SYNC_VERSION, timeout_s=JOIN_TIMEOUT_S)
        assert synced.error_code == 0, synced
        self._encode(joined.generation_id, member_id)

    def _encode(self, generation: int, member_id: str) -> None:
        heartbeat = HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=member_id)
        partition = OffsetCommitRequestPartition(
            partition_index=self._index, committed_offset=42, committed_metadata=""
        )
        commit = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        self.heartbeat = bytes(Exchange("bench").request(heartbeat, HEARTBEAT_VERSION).frame)
        self.commit = bytes(Exchange("bench").request(commit, COMMIT_VERSION).frame)

    def send(self, frame: bytes, latencies: Latencies) -> None:
        began = time.perf_counter()

        def answered(future: asyncio.Future[bytes]) -> None:
            latencies.seconds.append(time.perf_counter() - began)
            if future.cancelled() or future.exception() is not None:
                latencies.errors["connection lost"] += 1
            elif (answer := future.result())[-2:] != b"\0\0":  # the error code is the end of both answers
                latencies.errors[ErrorCode(int.from_bytes(answer[-2:], "big")).name] += 1

        self._client.send_bytes(frame).add_done_callback(answered)

    def close(self) -> None:
        self._client.close()


async def form(target: Target, count: int) -> list[Member]:
    """Form all groups, each with its generation."""
    room = asyncio.Semaphore(JOINING_GROUPS)

    async def one(number: int) -> list[Member]:
        async with room:
            members = [Member(target, f"group-{number}", index) for index in range(MEMBERS)]
            await asyncio.gather(*(member.join() for member in members))
            return members

    formed = await asyncio.gather(*(one(number) for number in range(count)))
    return [member for members in zip(*formed, strict=True) for member in members]


async def pace(members: Sequence[Member], interval_s: float, seconds: float, send: Callable[[Member], None]) -> None:
    """Call `send` for each member in turn, evenly over the interval."""
    began = time.perf_counter()
    sent = 0
    while (elapsed := time.perf_counter() - began) < seconds:
        due = int(elapsed / interval_s * len(members))
        for number in range(sent, due):
            send(members[number % len(members)])
        sent = max(sent, due)
        await asyncio.sleep(TICK_S)


async def work(members: Sequence[Member], seconds: float) -> tuple[Latencies, Latencies]:
    """Return the latencies of heartbeats and of commits."""
    heartbeats, commits = Latencies(), Latencies()
    await asyncio.gather(
        pace(members, HEARTBEAT_S, seconds, lambda member: member.send(member.heartbeat, heartbeats)),
        pace(members, COMMIT_S, seconds, lambda member: member.send(member.commit, commits)),
    )
    return heartbeats, commits


async def measure(target: Target, table: Table, groups: int, seconds: float) -> None:
    began = time.perf_counter()
    members = await form(target, groups)
    table.add("all groups stand", target.name, seconds=time.perf_counter() - began)
    await work(members, WARM_UP_S)
    cpu_s, own_cpu_s, began = target.cpu_s(), time.process_time(), time.perf_counter()
    heartbeats, commits = await work(members, seconds)
    await asyncio.sleep(0.5)  # the last answers
    elapsed = time.perf_counter() - began
    for name, latencies in (("commit", commits), ("heartbeat", heartbeats)):
        assert not latencies.errors, f"of {len(latencies.seconds)} {name}s have failed: {dict(latencies.errors)}"
        figures = {"p50_us": latencies.percentile_us(0.5), "p99_us": latencies.percentile_us(0.99)}
        table.add(name, target.name, requests_s=len(latencies.seconds) / elapsed, **figures)
    table.add("broker, meanwhile", target.name, cpu_s=target.cpu_s() - cpu_s, mb=target.rss_mb())
    table.add("load generator, share of a core", target.name, percent=(time.process_time() - own_cpu_s) / elapsed * 100)
    for member in members:
        member.close()


def prepare(target: Target) -> None:
    """Create the topic, and wait until the coordinator answers."""
    with NodeClient(target.host, target.port) as client:
        create(client, TOPIC, MEMBERS)
        end = time.monotonic() + JOIN_TIMEOUT_S
        answer: Any = None
        while time.monotonic() < end:
            answer = client.request(FindCoordinatorRequest(key="group-0", key_type=0), 3)
            if answer.error_code == 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"no coordinator: {answer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--quick", action="store_true", help="30 s for each broker")
    options = parser.parse_args()
    seconds = 30.0 if options.quick else options.seconds
    table = Table()
    for broker in (klamm, kafka):
        with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as target:
            prepare(target)
            uvloop.run(measure(target, table, options.groups, seconds))
    print(f"{options.groups} groups of {MEMBERS} members, {seconds:.0f} s\n\n{table.markdown()}")


if __name__ == "__main__":
    sys.exit(main())
