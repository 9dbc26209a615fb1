"""Apache Kafka takes over after Klamm was killed at any single step of a compaction, or of the split of a segment.

Kafka does not know Klamm's manifest, only names. One partition for each step, one start of Kafka over all of them: each
must serve the records of before the swap, or those of after it, and nothing in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from klamm.broker.tools.kafka_export import FEATURES
from klamm.protocol.cluster_metadata.cluster import FeatureLevelRecord
from klamm.protocol.cluster_metadata.topics import ConfigRecord
from klamm.protocol.records.batch import Record, batches, encode_batch, records
from klamm.protocol.schema import Message
from klamm.storage import paths
from klamm.storage.checkpoints import format_partition_metadata
from klamm.storage.compaction.cleanable import cleanable
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.filesystem import replace_file
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.swap_manifest import SwapManifest, announce, carry_out
from tests.broker.tools.kafka_directory import METADATA, make_directory, topic_id, topic_records, write_snapshot
from tests.clients.import_export import EARLIEST, LATEST, connected, offset_of, read_all
from tests.storage.batches import DIRECTORY, open_log
from tests.storage.compaction.test_cleaner import append, compact, contents, job_of
from tests.support.apache_kafka import apache_kafka
from tests.support.manual_clock import START_MS
from tests.support.memory_filesystem import Crash, MemoryFilesystem

pytestmark = [pytest.mark.faults, pytest.mark.campaign, pytest.mark.java, pytest.mark.timeout(300)]

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, compacted=True)
DAY_MS = 86_400_000
HALF = 5  # the offset at which the second half of a split begins

Content = list[tuple[int, bytes | None, bytes | None]]


@dataclass(frozen=True, slots=True)
class State:
    """The files after a kill at some step, and the two contents that are right."""

    files: dict[str, bytes]
    before: Content
    after: Content


def files_of(filesystem: MemoryFilesystem) -> dict[str, bytes]:
    return {entry.name: filesystem.read_bytes(DIRECTORY / entry.name) for entry in filesystem.list_directory(DIRECTORY)}


def content_of(log: Log) -> Content:
    return [(record.offset, record.key, record.value) for record in contents(log)]


def compacted_log() -> tuple[Log, MemoryFilesystem]:
    """A log that was compacted once, so that its tombstones, and all that is below them, may go now."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    for number in range(60):
        append(log, (b"key-%d" % (number % 20), b"v" * 50))
    for number in range(20):
        append(log, (b"key-%d" % number, None if number < 15 else b"last"))
    append(log, (b"end", b"of the first round"))
    log.roll()
    compact(log, filesystem)
    log.local.configure(LogConfig(segment_bytes=6000, index_interval_bytes=200, compacted=True))
    append(log, (b"end", b"of the second round"), (b"key-3", None))
    log.roll()
    append(log, (b"more", b"in the active segment"))
    log.local.flush()
    return log, filesystem


def states_of_a_compaction() -> Iterator[State]:
    for step in itertools.count():
        log, filesystem = compacted_log()
        before = content_of(log)
        found = cleanable(log, 0, START_MS + 30 * DAY_MS)
        assert found is not None
        cleaned, *_ = Cleaner(job_of(log, found, START_MS + 30 * DAY_MS), filesystem).run().groups
        assert len(cleaned.sources) > 2
        assert log.local.begin_swap(cleaned)
        filesystem.crash_after(step)
        try:
            log.local.swap_files(cleaned)
            is_done = True
        except Crash:
            is_done = False
        filesystem.kill()
        files = files_of(filesystem)
        after = content_of(open_log(filesystem, config=CONFIG, clean=False)) if is_done else []
        yield State(files, before, after)
        if is_done:
            return


def states_of_a_split() -> Iterator[State]:
    """Split by hand: a segment of ten records becomes two of five."""

    def segment(first: int, last: int) -> bytes:
        written = [Record(offset, START_MS, b"key-%d" % offset, b"split") for offset in range(first, last)]
        return b"".join(bytes(encode_batch([each], base_offset=each.offset, leader_epoch=0)) for each in written)

    whole: Content = [(offset, b"key-%d" % offset, b"split") for offset in range(2 * HALF)]
    for step in itertools.count():
        filesystem = MemoryFilesystem()
        filesystem.make_directories(DIRECTORY)
        for offset, suffix, content in (
            (0, ".log", segment(0, 2 * HALF)),
            (0, ".index", b""),
            (0, ".timeindex", b""),
            (0, ".log.cleaned", segment(0, HALF)),
            (0, ".index.cleaned", b""),
            (0, ".timeindex.cleaned", b""),
            (HALF, ".log.cleaned", segment(HALF, 2 * HALF)),
            (HALF, ".index.cleaned", b""),
            (HALF, ".timeindex.cleaned", b""),
        ):
            replace_file(filesystem, paths.offset_file(DIRECTORY, offset, suffix), content)
        swap = SwapManifest(0, (0,), (HALF,))
        filesystem.crash_after(step)
        try:
            announce(filesystem, DIRECTORY, swap)
            carry_out(filesystem, DIRECTORY, swap)
            is_done = True
        except Crash:
            is_done = False
        filesystem.kill()
        yield State(files_of(filesystem), whole, whole)
        if is_done:
            return


def write_states(root: Path, topic: str, number: int, states: list[State]) -> list[Message]:
    for index, state in enumerate(states):
        directory = root / f"{topic}-{index}"
        directory.mkdir()
        for name, content in state.files.items():
            (directory / name).write_bytes(content)
        (directory / "partition.metadata").write_bytes(format_partition_metadata(topic_id(number)))
    config = {"cleanup.policy": "compact", "retention.ms": "-1"}
    return topic_records(topic, topic_id(number), len(states), config=config)


def served(address: str, topic: str, count: int) -> list[Content]:
    found = []
    with connected(address) as client:
        for index in range(count):
            start, _ = offset_of(client, topic, index, EARLIEST)
            data = read_all(client, topic, index, start)
            found.append(
                [
                    (record.offset, record.key, record.value)
                    for position, head in batches(data)
                    for record in records(data, head, 1 << 20, position)
                ]
            )
            assert data, f"{topic}-{index} has nothing from {start} on"
            assert offset_of(client, topic, index, LATEST)[0] == found[-1][-1][0] + 1
    return found


def test_kafka_comes_out_right_after_every_step(tmp_path: Path) -> None:
    compaction, split = list(states_of_a_compaction()), list(states_of_a_split())
    after = compaction[-1].after
    assert len(compaction) > 20 and len(split) > 10
    assert 0 < len(after) < len(compaction[0].before)
    root = make_directory(tmp_path / "logs")
    (root / ".kafka_cleanshutdown").unlink()
    metadata = root / METADATA
    metadata.mkdir()
    features = [FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()]
    in_sync = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")
    topics = write_states(root, "compaction", 1, compaction) + write_states(root, "split", 2, split)
    write_snapshot(metadata, [*features, in_sync, *topics], 1000)
    with apache_kafka(tmp_path / "kafka", {"log.cleaner.enable": "false"}, log_dir=root) as kafka:
        compacted = served(kafka.address, "compaction", len(compaction))
        halves = served(kafka.address, "split", len(split))
    outcomes = []
    for step, (content, state) in enumerate(zip(compacted, compaction, strict=True)):
        assert content in (state.before, after), f"step {step}: {sorted(state.files)}"
        outcomes.append(content == after)
    assert outcomes == sorted(outcomes), "once it is done it stays done"
    assert outcomes[0] is False and outcomes[-1] is True
    for step, (content, state) in enumerate(zip(halves, split, strict=True)):
        assert content == state.before, f"step {step}: {sorted(state.files)}"
