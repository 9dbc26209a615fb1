"""A broker's data with known content, for tests that damage it between two starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from klamm.protocol.records.batch import batches
from tests.faults.network_cases import Broker, now_ms
from tests.faults.wire import batch
from tests.support.broker_process import BrokerProcess

VICTIM, BYSTANDER = "victim", "bystander"
CONFIG = {
    "log.segment.bytes": 1 << 20,
    "log.index.interval.bytes": 4096,
    "auto.create.topics.enable": "false",
    "klamm.metrics.listener": "none",
}
VALUE_BYTES = 20_000
BATCHES = 120  # 2.4 MB: two full segments and a third


@dataclass
class Data:
    """A stopped broker with two topics of one partition each; one record a batch, so offsets and sequences are one."""

    process: BrokerProcess
    producer_id: int

    @property
    def directory(self) -> Path:
        return self.process.data / f"{VICTIM}-0"

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.directory.glob(f"*{suffix}"))

    def positions(self, file: Path) -> list[int]:
        """Where the batches of a segment begin."""
        return [position for position, _ in batches(file.read_bytes())]

    def start(self) -> Broker:
        """Start and check: the other topic must be unharmed whatever happened."""
        self.process.restart()
        peer = Broker(self.process.port)
        assert peer.serves_the_next_client()
        assert peer.end_offset(BYSTANDER) == BATCHES
        assert self.append(peer, BYSTANDER, BATCHES) == 0
        return peer

    def append(self, peer: Broker, topic: str, sequence: int) -> int | str:
        return peer.produce(record(self.producer_id, sequence), topic=topic)


def record(producer_id: int, sequence: int) -> bytearray:
    return batch(
        f"{sequence} ".encode() + bytes(VALUE_BYTES),
        timestamp=now_ms(),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


def filled(directory: Path, *, clean: bool, config: dict[str, object] | None = None) -> Data:
    """Start, write, stop with SIGTERM (`clean`) or kill -9."""
    process = BrokerProcess(directory / "data", {**CONFIG, **(config or {})}).start()
    try:
        with Broker(process.port) as peer:
            producer_id, _ = peer.producer()
            for topic in (VICTIM, BYSTANDER):
                assert peer.create(topic) == 0
                for sequence in range(BATCHES):
                    assert peer.produce(record(producer_id, sequence), topic=topic) == 0
    except BaseException:
        process.kill()
        raise
    if clean:
        assert process.terminate() == 0
    else:
        process.kill()
    return Data(process, producer_id)


def flip(file: Path, position: int) -> None:
    """Flip one bit."""
    content = bytearray(file.read_bytes())
    content[position] ^= 0x10
    file.write_bytes(content)


def contents(peer: Broker, *, start: int = 0, topic: str = VICTIM) -> list[int]:
    """The numbers in the records from `start` to the end."""
    from klamm.protocol.records.batch import records

    found: list[int] = []
    offset, end = start, peer.end_offset(topic)
    while offset < end:
        answer = peer.fetched(offset=offset, topic=topic, max_bytes=8 << 20, partition_max_bytes=8 << 20)
        data = answer.responses[0].partitions[0]
        assert data.error_code == 0, f"offset {offset}: error {data.error_code}"
        raw = bytes(data.records)
        for position, head in batches(raw):
            for entry in records(raw, head, 1 << 27, position):
                assert entry.value is not None
                found.append(int(entry.value.split(b" ")[0]))
                offset = entry.offset + 1
    return found
