"""Check the files beside the partitions of a log directory, and facts on which the directories must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError, MetaProperties
from klamm.storage.filesystem import Filesystem
from klamm.storage.paths import TopicPartition
from klamm.storage.tools.verify.findings import Finding
from klamm.storage.tools.verify.partition_check import PartitionCheck

CHECKPOINTS = (
    paths.RECOVERY_POINT_CHECKPOINT,
    paths.LOG_START_CHECKPOINT,
    paths.HIGH_WATERMARK_CHECKPOINT,
    paths.CLEANER_CHECKPOINT,
)


@dataclass(slots=True)
class LogDirCheck:
    """The check of one log directory: its own files, and its partitions."""

    path: Path
    meta: MetaProperties | None = None
    is_clean: bool = False
    is_snapshot: bool = False
    """Whether `klamm snapshot` made it: files are missing there on purpose, so notes are not reported."""
    partitions: list[PartitionCheck] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def plan(cls, filesystem: Filesystem, path: Path, *, deep: bool) -> LogDirCheck:
        """Plan the checks of a log directory. Raises OSError when it cannot be read."""
        is_snapshot = filesystem.exists(path / paths.SNAPSHOT_MANIFEST)
        check = cls(path, is_clean=filesystem.exists(path / paths.CLEAN_SHUTDOWN), is_snapshot=is_snapshot)
        check._read_meta(filesystem)
        known = check._read_checkpoints(filesystem)
        names: set[TopicPartition] = set()
        for entry in sorted(filesystem.list_directory(path), key=lambda entry: entry.name):
            if not entry.is_directory:
                if entry.name.endswith(paths.TEMPORARY_SUFFIX):
                    check.findings.append(Finding(path / entry.name, "left over; it is not read any more", True))
                continue
            name = paths.parse_partition_directory(entry.name)
            if entry.name == paths.METADATA_LOG_DIRECTORY:
                continue
            if name is None:
                check._tell_directory(entry.name)
                continue
            names.add(name)
            of_it = {file: offsets[name] for file, offsets in known.items() if name in offsets}
            check.partitions.append(
                PartitionCheck.plan(
                    filesystem, name, path / entry.name, is_clean=check.is_clean, known=of_it, deep=deep
                )
            )
        check._check_known(known, names)
        return check

    def _read_meta(self, filesystem: Filesystem) -> None:
        path = self.path / paths.META_PROPERTIES
        try:
            self.meta = MetaProperties.parse(filesystem.read_bytes(path))
        except FileNotFoundError:
            self.findings.append(Finding(path, "is missing: the owner of the directory is not known", True))
        except CheckpointError as error:
            self.findings.append(Finding(path, str(error)))

    def _read_checkpoints(self, filesystem: Filesystem) -> dict[str, dict[TopicPartition, int]]:
        known = {}
        for file in CHECKPOINTS:
            try:
                known[file] = checkpoints.read_offsets(filesystem, self.path / file)
            except CheckpointError as error:
                self.findings.append(Finding(self.path / file, str(error)))
        return known

    def _tell_directory(self, name: str) -> None:
        if paths.is_delete_directory(name):
            what = "a deleted partition; a start removes it"
        elif name.endswith((paths.STRAY_DIRECTORY_SUFFIX, paths.FUTURE_DIRECTORY_SUFFIX)):
            what = "not served"
        else:
            what = "not a partition; Apache Kafka would not start with it"
        self.findings.append(Finding(self.path / name, what, True))

    def _check_known(self, known: Mapping[str, Mapping[TopicPartition, int]], names: set[TopicPartition]) -> None:
        for file, offsets in known.items():
            for name, offset in offsets.items():
                if name not in names and offset > 0:
                    what = f"{name} {offset}: the partition has no directory here"
                    self.findings.append(Finding(self.path / file, what))


def check_together(checks: Iterable[LogDirCheck]) -> list[Finding]:
    """Return the contradictions between the directories of one broker."""
    findings: list[Finding] = []
    listed = list(checks)
    metas = [(check.path, check.meta) for check in listed if check.meta is not None]
    for path, meta in metas[1:]:
        first_path, first = metas[0]
        if (meta.cluster_id, meta.node_id) != (first.cluster_id, first.node_id):
            file = path / paths.META_PROPERTIES
            what = f"cluster {meta.cluster_id} node {meta.node_id}, but {first_path} is of {first.cluster_id}"
            findings.append(Finding(file, f"{what} node {first.node_id}"))
    places: dict[TopicPartition, Path] = {}
    ids: dict[str, Counter[str]] = {}
    for check in listed:
        for partition in check.partitions:
            if partition.name in places:
                findings.append(Finding(partition.directory, f"is in {places[partition.name]}, too"))
            places[partition.name] = check.path
            if partition.topic_id is not None:
                ids.setdefault(partition.name.topic, Counter())[partition.id_text()] += 1
    for check in listed:
        for partition in check.partitions:
            common = ids.get(partition.name.topic, Counter()).most_common(1)
            if partition.topic_id is not None and common and partition.id_text() != common[0][0]:
                path = partition.directory / paths.PARTITION_METADATA
                findings.append(
                    Finding(path, f"topic id {partition.id_text()}, other partitions of the topic have {common[0][0]}")
                )
    return findings
