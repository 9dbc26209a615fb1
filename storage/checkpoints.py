"""The small files of a log directory: checkpoints, `partition.metadata`, `meta.properties`, the shutdown marker.

Checkpoints (Apache Kafka's text format):
    0                          version
    2                          number of lines that follow
    orders 0 1500              topic, partition, offset
    orders 1 1498
`partition.metadata`:
    version: 0
    topic_id: 22 characters of base64url
`meta.properties` is a Java properties file; `.kafka_cleanshutdown` is JSON, and was an empty file before Kafka 3.x.

All are replaced atomically and the directory is synced: after a crash the old or the new file is there, whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from klamm.protocol.wire import uuid_from_text, uuid_to_text
from klamm.storage.filesystem import Filesystem, replace_file
from klamm.storage.paths import RECOVERY_POINT_CHECKPOINT, TopicPartition

VERSION = "0"
META_VERSION = "1"


class CheckpointError(ValueError):
    """The file does not have the format that its name implies."""


def format_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [VERSION, str(len(lines)), *lines]).encode()


def parse_lines(content: bytes) -> list[list[str]]:
    """Return the words of each line after the version and the count. Raises CheckpointError."""
    try:
        lines = content.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError("not a text file") from error
    if len(lines) < 2 or lines[0].strip() != VERSION:
        raise CheckpointError(f"version {lines[0][:20]!r} is not {VERSION}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if lines[1].strip() != str(len(rows)):
        raise CheckpointError(f"{len(rows)} lines where {lines[1][:20]!r} are announced")
    return rows


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    rows = sorted((key.topic, key.partition, offset) for key, offset in offsets.items())
    return format_lines([f"{topic} {partition} {offset}" for topic, partition, offset in rows])


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Return the offset of each partition in a checkpoint file. Raises CheckpointError."""
    offsets = {}
    for row in parse_lines(content):
        if len(row) != 3 or not row[1].isdecimal() or not row[2].isdecimal():
            raise CheckpointError(f"{row!r} is not topic, partition, offset")
        offsets[TopicPartition(row[0], int(row[1]))] = int(row[2])
    return offsets


def format_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}\n".encode()


def parse_partition_metadata(content: bytes) -> bytes:
    """Return the topic id in a `partition.metadata`. Raises CheckpointError."""
    values = dict(line.split(": ", 1) for line in content.decode("ascii", "replace").splitlines() if ": " in line)
    if values.get("version") != VERSION or "topic_id" not in values:
        raise CheckpointError(f"{content[:60]!r} is not a partition.metadata")
    try:
        return uuid_from_text(values["topic_id"].strip())
    except ValueError as error:
        raise CheckpointError(f"topic_id {values['topic_id']!r} is not a topic id") from error


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The cluster and the node that a log directory belongs to. The ids are base64url texts."""

    cluster_id: str
    node_id: int
    directory_id: str
    version: str = META_VERSION

    def format(self) -> bytes:
        rows = {
            "cluster.id": self.cluster_id,
            "directory.id": self.directory_id,
            "node.id" if self.version == META_VERSION else "broker.id": str(self.node_id),
            "version": self.version,
        }
        return "".join(f"{key}={value}\n" for key, value in rows.items()).encode()

    @classmethod
    def parse(cls, content: bytes) -> MetaProperties:
        """Parse version 1 (KRaft) or 0 (ZooKeeper: `broker.id`, no directory id, and before Kafka 2.4 no cluster id).

        Raises CheckpointError.
        """
        values = parse_properties(content)
        version = values.get("version")
        if version not in ("0", META_VERSION):
            raise CheckpointError(f"version {version!r} is neither 0 nor 1")
        node_id = values.get("node.id", values.get("broker.id", ""))
        if not node_id.isdecimal():
            raise CheckpointError(f"node.id {node_id!r} is not a number")
        if not values.get("cluster.id") and version == META_VERSION:
            raise CheckpointError("cluster.id is missing")
        return cls(values.get("cluster.id", ""), int(node_id), values.get("directory.id", ""), version)


def parse_properties(content: bytes) -> dict[str, str]:
    """Parse the subset of Java's properties format that such files use: comments, `key=value`, backslash escapes."""
    values = {}
    for line in content.decode("latin-1").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, equals, value = line.partition("=")
            if not equals:
                raise CheckpointError(f"{line[:60]!r} is not key=value")
            values[key.strip()] = value.strip().replace("\\", "")
    return values


def format_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(content: bytes) -> int:
    """Return the broker epoch, or -1 when the file has none. Only the presence of the file matters."""
    try:
        return int(json.loads(content)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def read_offsets(filesystem: Filesystem, path: Path) -> dict[TopicPartition, int]:
    """Return the offsets in a checkpoint, {} when the file does not exist. Raises CheckpointError and OSError.

    Kafka creates the files empty and writes them later. An empty file of recovery points, however, has lost its
    content.
    """
    try:
        content = filesystem.read_bytes(path)
    except FileNotFoundError:
        return {}
    if not content and path.name != RECOVERY_POINT_CHECKPOINT:
        return {}
    return parse_offsets(content)


def write_offsets(filesystem: Filesystem, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(filesystem, path, format_offsets(offsets))
