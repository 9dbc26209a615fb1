"""Log directories as Apache Kafka leaves them, made without it: partitions, checkpoints, `__cluster_metadata-0`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from klamm.broker.tools.kraft_log import checkpoint_name, snapshot
from klamm.protocol.cluster_metadata import kinds
from klamm.protocol.cluster_metadata.topics import ConfigRecord, PartitionRecord, TopicRecord
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.schema import Message
from klamm.protocol.wire import uuid_from_text, uuid_to_text
from klamm.storage.clock import SystemClock
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery.loader import LogSource, open_log
from tests.storage.batches import batch

CLUSTER_ID = "Yc0lUXk4T7-kLAMMtest0A"
DIRECTORY_ID = "K3pTXb_gmfEebVId_Gz1YQ"
METADATA = "__cluster_metadata-0"
NOW_MS = 1_700_000_000_000


def topic_id(number: int) -> bytes:
    return bytes([number]) * 16


def make_directory(path: Path, *, node_id: int = 1, directory_id: str = DIRECTORY_ID, zookeeper: bool = False) -> Path:
    """An empty log directory with its `meta.properties` and the mark of a clean shutdown."""
    path.mkdir(parents=True)
    lines = ["version=0", f"broker.id={node_id}"] if zookeeper else ["version=1", f"node.id={node_id}"]
    lines += [f"cluster.id={CLUSTER_ID}"] + ([] if zookeeper else [f"directory.id={directory_id}"])
    (path / "meta.properties").write_text("#\n#Sat Nov 21 15:50:16 UTC 2026\n" + "\n".join(lines) + "\n")
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')
    return path


def make_partition(
    path: Path, name: str, *, topic: bytes | None, count: int = 3, producer_id: int = -1, epoch: int = 4
) -> None:
    """A partition with `count` batches of one record each."""
    directory = path / name
    log = open_log(LogSource(directory, LogConfig(), clock=SystemClock(), filesystem=OsFilesystem(), clean=True))
    for number in range(count):
        producer = {"producer_id": producer_id, "epoch": 0, "sequence": number} if producer_id >= 0 else {}
        log.append_as_leader(batch(NOW_MS + number, **producer), leader_epoch=epoch)
    log.close()
    if topic is not None:
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(topic)}\n")
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        file = path / checkpoint
        rows = file.read_text().splitlines()[2:] if file.exists() else []
        rows.append(f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {count}")
        file.write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")


def topic_records(
    name: str,
    topic: bytes,
    partitions: int,
    *,
    replicas: Sequence[int] = (1,),
    leader_epoch: int = 4,
    directory_id: str = DIRECTORY_ID,
    config: dict[str, str] | None = None,
) -> list[Message]:
    records: list[Message] = [TopicRecord(name=name, topic_id=topic)]
    records += [
        PartitionRecord(
            partition_id=index,
            topic_id=topic,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0],
            leader_epoch=leader_epoch,
            partition_epoch=0,
            directories=[uuid_from_text(directory_id)] * len(replicas),
        )
        for index in range(partitions)
    ]
    records += [
        ConfigRecord(resource_type=2, resource_name=name, name=key, value=value)
        for key, value in (config or {}).items()
    ]
    return records


def metadata_log(records: Sequence[Message], *, base_offset: int = 0, per_batch: int = 3) -> bytes:
    """The `.log` with these records in batches."""
    out = bytearray()
    for start in range(0, len(records), per_batch):
        first = base_offset + start
        found = [
            Record(first + place, NOW_MS, None, kinds.encode(message))
            for place, message in enumerate(records[start : start + per_batch])
        ]
        out += encode_batch(found, base_offset=first, leader_epoch=1)
    return bytes(out)


def write_metadata(path: Path, records: Sequence[Message]) -> Path:
    """`__cluster_metadata-0` with the records in its log."""
    directory = path / METADATA
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(metadata_log(records))
    return directory


def write_snapshot(directory: Path, records: Sequence[Message], end_offset: int, epoch: int = 1) -> Path:
    file = directory / checkpoint_name(end_offset, epoch)
    file.write_bytes(snapshot(records, now_ms=NOW_MS, epoch=epoch))
    return file
