"""Known damage in snapshots: damaged ranges that the scrubber has found are stored with a snapshot and restored with
it. Damaged segments are shared as they are, and must not be served as good before the scrubber finds the damage again.

A snapshot stores it in `klamm.scrub`, as a log dir does (`storage.scrub.scrub_state`); there is no file if nothing is
damaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from klamm.broker.tools.manifest import TopicEntry
from klamm.protocol.wire import uuid_to_text
from klamm.storage import paths
from klamm.storage.filesystem import Filesystem
from klamm.storage.log.results import DamagedRange
from klamm.storage.paths import TopicPartition
from klamm.storage.scrub import scrub_state
from klamm.storage.scrub.scrub_state import KnownDamage, ScrubState


def take(
    filesystem: Filesystem, log_dirs: Iterable[Path], target: Path, entries: Iterable[TopicEntry]
) -> tuple[KnownDamage, ...]:
    """Store the known damage of the partitions in the snapshot, and return it. Raises OSError."""
    ids = {TopicPartition(entry.name, each.index): entry.topic_id for entry in entries for each in entry.partitions}
    found = []
    for log_dir in log_dirs:
        for known in scrub_state.load(filesystem, log_dir).damage:
            if ids.get(known.partition) == known.topic_id:
                directory = paths.partition_directory(target, known.partition.topic, known.partition.partition)
                ranges = tuple(each for each in known.ranges if _is_there(filesystem, directory, each))
                found += [replace(known, ranges=ranges)] if ranges else []
    if found:
        scrub_state.save(filesystem, target, ScrubState(damage=found))
    return tuple(found)


def bring_back(
    filesystem: Filesystem, snapshot: Path, log_dir: Path, restored: dict[TopicPartition, tuple[TopicPartition, bytes]]
) -> list[KnownDamage]:
    """Add the known damage of a snapshot to a log dir, under the names and ids that the partitions have there.

    Raises OSError.
    """
    added = []
    for known in scrub_state.load(filesystem, snapshot).damage:
        if known.partition in restored:
            partition, topic_id = restored[known.partition]
            added.append(KnownDamage(partition, uuid_to_text(topic_id), known.ranges))
    if added:
        state = scrub_state.load(filesystem, log_dir)
        names = {known.partition for known in added}
        state.damage = [*(known for known in state.damage if known.partition not in names), *added]
        scrub_state.save(filesystem, log_dir, state)
    return added


def describe_damage(damage: Iterable[KnownDamage]) -> str:
    """Describe the damage in one line for the operator."""
    ranges = [
        f"{known.partition} offsets [{each.first_offset}, {each.next_offset})"
        for known in damage
        for each in known.ranges
    ]
    return f"known to be damaged, and not served: {', '.join(ranges)}"


def _is_there(filesystem: Filesystem, directory: Path, damaged: DamagedRange) -> bool:
    """Return whether the segment is there: it may have been deleted, or replaced by a smaller one."""
    path = paths.offset_file(directory, damaged.segment, paths.LOG_SUFFIX)
    return filesystem.exists(path) and filesystem.open_read(path).size() >= damaged.end_position
