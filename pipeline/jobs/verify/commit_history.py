"""The commit history of each topic partition of a table: its first offset, its gaps, its dead letters.

Read from the newest commit back. An older commit no longer counts for offsets that a newer one has loaded again, nor
for anything from before a topic was created again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from klamm.pipeline.jobs.verify.intervals import Interval, merged, without
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.table import DataFile, Table


@dataclass(slots=True)
class PartitionHistory:
    """The history of one topic partition. `begun` is the lowest loaded offset, None if no commit has it."""

    begun: int | None = None
    gaps: list[Interval] = field(default_factory=list)
    dead: list[Interval] = field(default_factory=list)
    loaded: list[Interval] = field(default_factory=list)


@dataclass(slots=True)
class CommitHistory:
    """The histories of all partitions. `since`: versions in which topics were created again; older files are void."""

    partitions: dict[TopicPartition, PartitionHistory] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    is_complete: bool = False


def read_commit_history(table: Table) -> CommitHistory:
    """Read the history as far back as the log of the table reaches."""
    commit_history = CommitHistory()
    oldest = table.version + 1
    for commit in table.commits():
        oldest = commit.version
        for partition, (start, _) in _items(commit.facts, "ranges", commit_history):
            history = commit_history.partitions.setdefault(partition, PartitionHistory())
            history.begun = start if history.begun is None else min(history.begun, start)
        for name in ("gaps", "dead_letters"):
            for partition, intervals in _items(commit.facts, name, commit_history):
                history = commit_history.partitions.setdefault(partition, PartitionHistory())
                fresh = without([(start, end) for start, end in intervals], history.loaded)
                (history.gaps if name == "gaps" else history.dead).extend(fresh)
        for partition, (start, end) in _items(commit.facts, "ranges", commit_history):
            history = commit_history.partitions[partition]
            history.loaded = merged([*history.loaded, (start, end)])
        for topic in commit.facts.get("recreated", ()):
            commit_history.since.setdefault(topic, commit.version)
    commit_history.is_complete = oldest == 0
    return commit_history


def current_files(table: Table, commit_history: CommitHistory) -> list[DataFile]:
    """Return the files without those from before a topic was created again."""
    files = table.files()
    for topic, version in commit_history.since.items():
        older = {file.path for file in Table.open(table.location, version - 1).files() if file.topic == topic}
        files = [file for file in files if file.path not in older]
    return files


def _items(facts: dict[str, Any], name: str, commit_history: CommitHistory) -> list[tuple[TopicPartition, Any]]:
    return [
        (TopicPartition(topic, int(number)), value)
        for topic, partitions in facts.get(name, {}).items()
        if topic not in commit_history.since
        for number, value in partitions.items()
    ]
