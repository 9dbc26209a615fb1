"""SIGTERM while everything is busy: requests already read are answered, then the process soon ends with 0."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.faults.campaign import scaled, seeded
from tests.faults.network_cases import INT_MAX, Broker, one
from tests.faults.wire import CLOSED, SILENT, Wire, frame_of
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

ROUNDS = scaled(2, 10)
CONNECTIONS = 6
DEADLINE_S = 10.0


class Load(threading.Thread):
    """Send pipelined one-record requests to one partition until the broker closes; count the answers."""

    def __init__(self, port: int, partition: int) -> None:
        super().__init__(daemon=True)
        data = [PartitionProduceData(index=partition, records=one())]
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)])
        self._frame = frame_of(request, 9)
        self._wire = Wire(port, 30)
        self.partition = partition
        self.answers = 0
        self.errors: list[Any] = []

    def run(self) -> None:
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        while isinstance(answer := self._wire.receive(), bytes):
            self.answers += 1
            # correlation, tags, one topic "t", one partition, its index, its error
            if (code := struct.unpack_from(">h", answer, 4 + 1 + 1 + 2 + 1 + 4)[0]) != 0:
                self.errors.append(code)
        if answer == SILENT:
            self.errors.append(SILENT)
        sender.join(30)
        self._wire.close()

    def _send(self) -> None:
        self._wire.socket.settimeout(30)
        try:
            while True:
                self._wire.socket.sendall(self._frame * 20)
        except OSError:
            pass  # closed by the broker


@pytest.mark.parametrize("flush", ["by the kernel", "each append"])
def test_every_request_that_was_read_is_answered(tmp_path: Path, flush: str) -> None:
    """Check that each answer is a record and each record an answer: no request was accepted and left unanswered."""
    rng = seeded(f"sigterm, flushed {flush}")
    config = {"log.flush.interval.messages": 1} if flush == "each append" else {}
    with BrokerProcess(tmp_path / "data", config) as process:
        with Broker(process.port) as peer:
            assert peer.create("t", partitions=CONNECTIONS) == 0
        answers = [0] * CONNECTIONS
        for _ in range(ROUNDS):
            loads = [Load(process.port, n) for n in range(CONNECTIONS)]
            for load in loads:
                load.start()
            time.sleep(rng.uniform(0.2, 0.8))
            started = time.monotonic()
            assert process.terminate() == 0
            assert time.monotonic() - started < DEADLINE_S
            for load in loads:
                load.join(30)
                assert not load.errors, load.errors[:3]
                answers[load.partition] += load.answers
            recovered = process.log().count("checking the logs")
            process.restart()
            assert process.log().count("checking the logs") == recovered, "the end was not clean"
            with Broker(process.port) as peer:
                ends = [end_of(peer, n) for n in range(CONNECTIONS)]
            assert ends == answers
    assert "Traceback" not in process.log()


def test_long_polls_are_answered_at_the_end(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with Broker(process.port) as peer:
            assert peer.create("t") == 0
            assert peer.produce(one()) == 0
        wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            max_wait_ms=600_000,
            min_bytes=INT_MAX,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
        )
        with Wire(process.port, 15) as wire, Broker(process.port) as peer:
            wire.send(frame_of(fetch, 11))
            assert peer.serves_the_next_client()  # so the fetch was read, too
            started = time.monotonic()
            assert process.terminate() == 0
            assert time.monotonic() - started < DEADLINE_S
            assert isinstance(wire.receive(), bytes)
            assert wire.receive() == CLOSED
        process.restart()


def test_a_reader_that_takes_nothing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process, Wire(process.port, 15) as wire:
        with Broker(process.port) as peer:
            assert peer.create("t") == 0
            for _ in range(16):
                assert peer.produce(one(bytes(1_000_000))) == 0
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 << 20)
        fetch = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=64 << 20, topics=[FetchTopic(topic="t", partitions=[wanted])]
        )
        wire.send(frame_of(fetch, 11) * 50)
        started = time.monotonic()
        assert process.terminate() == 0
        assert time.monotonic() - started < DEADLINE_S
        process.restart()
        assert "checking the logs" not in process.log().rpartition("stopped")[2]


def end_of(peer: Broker, partition: int) -> int:
    from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    topics = [ListOffsetsTopic(name="t", partitions=[wanted])]
    return int(peer.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 2).topics[0].partitions[0].offset)
