"""`klamm-snapshot.json`: the topics in a snapshot, with everything needed to create them again.

{"version": 1, "created_ms": 1700000000000, "cluster_id": "...", "node_id": 1, "topics": [
  {"name": "t", "topic_id": "...", "configs": {"retention.ms": "1000"}, "partitions": [
    {"index": 0, "log_start_offset": 0, "end_offset": 1500}]}]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from klamm.protocol.wire import uuid_from_text
from klamm.storage.filesystem import Filesystem, describe, replace_file
from klamm.storage.paths import SNAPSHOT_MANIFEST

FILE_NAME: Final = SNAPSHOT_MANIFEST
VERSION: Final = 1


class CannotBackUp(Exception):
    """A snapshot or restore is impossible; one line for the operator."""


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The offsets [log_start_offset, end_offset) of one partition."""

    index: int
    log_start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic in a snapshot. ``topic_id`` is in Kafka's text form; ``partitions[i].index == i``."""

    name: str
    topic_id: str
    configs: dict[str, str]
    partitions: tuple[PartitionEntry, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of the manifest."""

    created_ms: int
    cluster_id: str
    node_id: int
    topics: tuple[TopicEntry, ...]

    def write(self, filesystem: Filesystem, directory: Path) -> None:
        text = json.dumps({"version": VERSION, **asdict(self)}, indent=2)
        replace_file(filesystem, directory / FILE_NAME, f"{text}\n".encode())

    @classmethod
    def read(cls, filesystem: Filesystem, directory: Path) -> Manifest:
        """Read the manifest of a snapshot. Raises CannotBackUp."""
        path = directory / FILE_NAME
        try:
            return _parsed(json.loads(filesystem.read_bytes(path)))
        except FileNotFoundError:
            raise CannotBackUp(
                f"{directory}: there is no {FILE_NAME}: no snapshot, or one that was not finished"
            ) from None
        except OSError as error:
            raise CannotBackUp(f"{path}: {describe(error)}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CannotBackUp(f"{path}: not the manifest of a snapshot: {error!r}") from None


def _parsed(content: dict[str, Any]) -> Manifest:
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']} is not {VERSION}")
    topics = []
    for topic in content["topics"]:
        partitions = tuple(
            PartitionEntry(int(row["index"]), int(row["log_start_offset"]), int(row["end_offset"]))
            for row in topic["partitions"]
        )
        if [partition.index for partition in partitions] != list(range(len(partitions))):
            raise ValueError(f"topic {topic['name']}: partitions are missing")
        uuid_from_text(topic["topic_id"])
        configs = {str(key): str(value) for key, value in topic["configs"].items()}
        topics.append(TopicEntry(str(topic["name"]), topic["topic_id"], configs, partitions))
    return Manifest(int(content["created_ms"]), str(content["cluster_id"]), int(content["node_id"]), tuple(topics))


def chosen(names: Iterable[str], wanted: Iterable[str] | None, default: Callable[[str], bool]) -> list[str]:
    """Return the topics that are named, or matched by regular expressions; without any, those of the default.

    Raises CannotBackUp for a text that matches no topic.
    """
    import re

    known = sorted(names)
    if wanted is None:
        return [name for name in known if default(name)]
    found: set[str] = set()
    for text in wanted:
        try:
            matched = [text] if text in known else [name for name in known if re.fullmatch(text, name)]
        except re.error as error:
            raise CannotBackUp(f"--topics: {text!r} is neither a topic nor a regular expression: {error}") from None
        if not matched:
            raise CannotBackUp(f"--topics: no topic is named {text!r}, and none is matched by it")
        found.update(matched)
    return sorted(found)
