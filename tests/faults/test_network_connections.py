"""Network rows of docs/faults.md about connections rather than requests: slow, many, one-sided and greedy clients."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.faults.campaign import scaled
from tests.faults.network_cases import Broker, one
from tests.faults.wire import CLOSED, Wire, frame_of, header, sized
from tests.support.broker_process import BrokerProcess, wait_for

pytestmark = pytest.mark.faults

PING = frame_of(ApiVersionsRequest(), 0)
MIB = 1 << 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("connections") / "data") as broker:
        yield broker
    assert "Traceback" not in broker.log()


def answers(port: int) -> bool:
    with Broker(port) as peer:
        return peer.serves_the_next_client()


def test_row_9_half_a_frame_then_silence_is_closed_at_the_deadline(data: Path) -> None:
    with BrokerProcess(data, {"klamm.frame.timeout.ms": 500}) as broker, ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker.port)) for _ in range(50)]
        for wire in wires:
            wire.send(b"\x00\x10\x00\x00only the beginning")
        assert answers(broker.port)
        assert [wire.receive() for wire in wires] == [CLOSED] * 50
        assert answers(broker.port)


def test_row_9_a_declared_size_takes_no_memory(process: BrokerProcess) -> None:
    """200 frames of 100 MiB are announced, 2 KiB of each arrive."""
    assert answers(process.port)
    before = process.rss_bytes()
    with ExitStack() as stack:
        for _ in range(200):
            wire = stack.enter_context(Wire(process.port))
            wire.send(struct.pack(">i", 100 * MIB) + bytes(2048))
        assert answers(process.port)
        assert process.rss_bytes() - before < 8 * MIB


def test_row_60_a_connection_above_the_limit_of_its_address_is_closed(data: Path) -> None:
    with BrokerProcess(data, {"max.connections.per.ip": 5}) as broker, ExitStack() as stack:
        wires = [stack.enter_context(Wire(broker.port)) for _ in range(5)]
        for wire in wires:
            wire.send(PING)
            assert wire.receive() != CLOSED
        for _ in range(3):
            with Wire(broker.port) as sixth:
                sixth.send(PING)
                assert sixth.receive() == CLOSED
        wires.pop().close()
        wait_for(lambda: answers(broker.port), what="a free place")


def test_row_61_5000_pipelined_requests_are_answered_in_order(process: BrokerProcess) -> None:
    count = 5000
    with Wire(process.port) as wire:
        wire.send(b"".join(sized(struct.pack(">hhih", 3, 1, number, -1) + b"\0\0\0\0") for number in range(count)))
        seen = [struct.unpack_from(">i", wire.receive())[0] for _ in range(count)]  # type: ignore[arg-type]
    assert seen == list(range(count))


def test_row_62_a_client_that_never_reads_costs_bounded_memory(process: BrokerProcess) -> None:
    """Many large Metadata and Fetch responses are asked for and none is taken."""
    with Broker(process.port) as peer:
        assert peer.create("greedy", partitions=1000) in (0, 36)
        for _ in range(16):
            assert peer.produce(one(bytes(MIB - 1000)), topic="greedy") == 0
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 * MIB)
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=64 * MIB, topics=[FetchTopic(topic="greedy", partitions=[partition])]
    )
    questions = {"Metadata": sized(header(3, 1) + b"\xff\xff\xff\xff"), "Fetch": frame_of(fetch, 11)}
    for question in questions.values():
        before = process.rss_bytes()
        with ExitStack() as stack:
            for _ in range(10):
                wire = stack.enter_context(Wire(process.port, timeout_s=0.2))
                with suppress(TimeoutError):  # muted, and the kernel's buffers are full: that is the point
                    wire.socket.sendall(question * 2000)
            assert answers(process.port)
            assert process.rss_bytes() - before < 64 * MIB
    assert answers(process.port)


def test_row_64_idle_connections(process: BrokerProcess) -> None:
    """5,000 of them, below 50 KiB each; the next client is served."""
    count = scaled(2000, 5000)
    assert answers(process.port)
    before = process.rss_bytes()
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(process.port)) for _ in range(count)]
        for wire in wires:
            wire.send(PING)
        for wire in wires:
            assert wire.receive() != CLOSED
        assert answers(process.port)
        assert process.rss_bytes() - before < count * 50 * 1024
    assert answers(process.port)


def test_row_35_a_name_of_249_characters_is_created_and_deleted(process: BrokerProcess) -> None:
    name = "x" * 249
    with Broker(process.port) as peer:
        assert peer.create(name, partitions=11) == 0
        assert peer.produce(one(), topic=name, partition=10) == 0
        assert (process.data / f"{name}-10").is_dir()
        deleted = peer.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 3)
        assert deleted.responses[0].error_code == 0
    wait_for(lambda: not [path for path in process.data.iterdir() if path.name.startswith("xxx")], what="the removal")


def test_row_33_no_name_reaches_the_disk(process: BrokerProcess) -> None:
    with Broker(process.port) as peer:
        for name in ("../../escape", "../escape", "/tmp/escape", "a/../../escape"):
            assert peer.produce(one(), topic=name) == 3
            assert peer.create(name) == 17
    assert not list(process.data.parent.parent.rglob("*escape*"))


def test_row_63_half_close_after_many_requests(process: BrokerProcess) -> None:
    """Everything that was sent before FIN is answered, then the connection is closed."""
    with Wire(process.port) as wire:
        wire.send(b"".join(sized(struct.pack(">hhih", 3, 1, number, -1) + b"\0\0\0\0") for number in range(1000)))
        wire.half_close()
        seen = 0
        while wire.receive() != CLOSED:
            seen += 1
    assert seen == 1000


def test_idle_connections_are_closed_after_connections_max_idle_ms(data: Path) -> None:
    with BrokerProcess(data, {"connections.max.idle.ms": 400}) as broker, Wire(broker.port) as wire:
        started = time.monotonic()
        wire.send(PING)
        assert wire.receive() != CLOSED
        assert wire.receive() == CLOSED
        assert time.monotonic() - started >= 0.35
