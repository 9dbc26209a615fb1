"""Checkpoints of groups: the target offsets at which consumers of the source would continue.

After each round the offsets of the source's groups are translated (`syncs.Translation`) and written to the checkpoints
topic as MirrorMaker 2 does, so that its `RemoteClusterUtils.translateOffsets` finds them. If asked to, they are also
committed for the same group at the target: only forwards, and only while the group has no members there. There is no
translation for a group that has not reached the mirrored offsets, nor for topics with records that go to other
partitions.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klamm.pipeline.jobs.mirror.syncs import (
    Checkpoint,
    Translation,
    checkpoint_key,
    checkpoint_value,
    checkpoints_topic,
)
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.groups import Committed, commit, committed, list_groups
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.records.batch import Record, encode_batch

OWN_GROUPS: Final = re.compile(r"klamm-.*|connect-.*|__.*")
"""Groups of the pipeline itself: they have no consumers, or hold offsets of other topics than their names say."""
OWN_METADATA: Final = re.compile(r"\S+ ([0-9a-f]{32}|-)")
BATCH: Final = 1000


@dataclass(slots=True)
class Checkpoints:
    """The translations and written checkpoints of one source; lives as long as the job."""

    alias: str
    groups: re.Pattern[str]
    commit: bool
    translations: dict[TopicPartition, Translation] = field(default_factory=dict)
    _written: dict[tuple[str, TopicPartition], Checkpoint] = field(default_factory=dict)

    def write(self, source: Cluster, target: Cluster, targets: Mapping[TopicPartition, TopicPartition]) -> Written:
        """Write new checkpoints. `targets`: source partition -> target partition, for partitions that are kept."""
        found = [one for group in self._groups(source) for one in self._of_group(source, group, targets)]
        new = [one for one in found if self._written.get((one.group, one.partition)) != one]
        self._append(target, new)
        self._written.update({(one.group, one.partition): one for one in new})
        busy = self._commit(target, found) if self.commit else []
        return Written(len(new), len({one.group for one in found}), tuple(busy))

    def _groups(self, source: Cluster) -> list[str]:
        return [
            group for group in list_groups(source) if self.groups.fullmatch(group) and not OWN_GROUPS.fullmatch(group)
        ]

    def _of_group(
        self, source: Cluster, group: str, targets: Mapping[TopicPartition, TopicPartition]
    ) -> Iterable[Checkpoint]:
        for one, at in sorted(committed(source, group).items()):
            translation = self.translations.get(one)
            if one not in targets or translation is None or OWN_METADATA.fullmatch(at.metadata):
                continue
            if (downstream := translation.downstream(at.offset)) is not None:
                yield Checkpoint(group, targets[one], at.offset, downstream, at.metadata)

    def _append(self, target: Cluster, checkpoints: list[Checkpoint]) -> None:
        if not checkpoints:
            return
        now_ms = int(time.time() * 1000)
        with Producer(target) as producer:
            for first in range(0, len(checkpoints), BATCH):
                rows = [
                    Record(at, now_ms, checkpoint_key(one), checkpoint_value(one))
                    for at, one in enumerate(checkpoints[first : first + BATCH])
                ]
                producer.send(TopicPartition(checkpoints_topic(self.alias), 0), encode_batch(rows))

    def _commit(self, target: Cluster, checkpoints: list[Checkpoint]) -> list[str]:
        """Commit at the target; return the groups that have members there, for which nothing is committed."""
        wanted: dict[str, dict[TopicPartition, int]] = {}
        for one in checkpoints:
            wanted.setdefault(one.group, {})[one.partition] = one.downstream
        busy = []
        for group, offsets in wanted.items():
            there = committed(target, group, offsets)
            ahead = {one: at for one, at in offsets.items() if there.get(one, Committed(-1, "")).offset < at}
            if ahead and not commit(target, group, ahead):
                busy.append(group)
        return busy


@dataclass(frozen=True, slots=True)
class Written:
    """The number of new checkpoints, of groups with checkpoints, and the groups that were not committed for."""

    checkpoints: int
    groups: int
    busy: tuple[str, ...]
