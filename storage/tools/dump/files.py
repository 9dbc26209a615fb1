"""Dump files, each according to its name.

`.log` and KRaft's `.checkpoint` (batches), `.index`, `.timeindex`, `.txnindex`, `.snapshot` (producers): in the lines
of Kafka's tool. `leader-epoch-checkpoint`, the offset checkpoints of a log directory, `partition.metadata`,
`meta.properties` and the clean-shutdown marker, which Kafka's tool cannot print: in lines of our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from klamm.protocol.wire import uuid_to_text
from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError, MetaProperties
from klamm.storage.filesystem import Filesystem, OsFilesystem, describe
from klamm.storage.log.producer_state_entry import ProducerStateEntry, SnapshotError, parse_snapshot
from klamm.storage.tools.dump.decoders import RecordDecoder, strings
from klamm.storage.tools.dump.findings import Findings
from klamm.storage.tools.dump.index_files import (
    IndexFile,
    IndexMode,
    dump_offset_index,
    dump_time_index,
    dump_transaction_index,
)
from klamm.storage.tools.dump.log_file import LogOptions, dump_log, optional_long

MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024

OFFSET_CHECKPOINTS: Final = (
    paths.RECOVERY_POINT_CHECKPOINT,
    paths.LOG_START_CHECKPOINT,
    paths.HIGH_WATERMARK_CHECKPOINT,
    paths.CLEANER_CHECKPOINT,
)
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
METADATA_CHECKPOINT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of a dump. `max_bytes` limits each log, None for all of it; the decoder is for `print_data_log`."""

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    index_mode: IndexMode = IndexMode.SHOW
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_bytes: int | None = None
    decode: RecordDecoder = strings


def dump_files(
    files: Sequence[Path],
    options: DumpOptions,
    *,
    out: TextIO,
    errors: TextIO,
    filesystem: Filesystem | None = None,
) -> int:
    """Write the dump of `files` to `out` and problems to `errors`; return 0, or 1 if there are problems."""
    findings = Findings()
    dump = Dump(options, filesystem if filesystem is not None else OsFilesystem(), findings)
    for path in files:
        print(f"Dumping {path}", file=out)
        for line in dump.lines(path):
            print(line, file=out)
    out.flush()
    for line in findings.lines():
        print(line, file=errors)
    return 0 if findings.is_clean else 1


class Dump:
    """The dump of one file after the other; problems are added to `findings`."""

    def __init__(self, options: DumpOptions, filesystem: Filesystem, findings: Findings) -> None:
        self._options = options
        self._filesystem = filesystem
        self._findings = findings
        self._log_options = LogOptions(
            deep=options.deep_iteration or options.print_data_log,
            show_metadata=not options.skip_record_metadata,
            decode=options.decode if options.print_data_log else None,
            max_bytes=options.max_bytes,
        )

    def lines(self, path: Path) -> Iterator[str]:
        try:
            yield from self._lines(path)
        except OSError as error:
            self._findings.problem(path, describe(error))
        except (CheckpointError, SnapshotError) as error:
            self._findings.problem(path, str(error))

    def _lines(self, path: Path) -> Iterator[str]:
        parsed = paths.parse_offset_file(path.name)
        if parsed is not None:
            yield from self._offset_file(path, *parsed)
        elif path.name == BOOTSTRAP_CHECKPOINT:
            yield "KRaft bootstrap snapshot"
            yield from self._log(path, 0)
        elif (match := METADATA_CHECKPOINT.fullmatch(path.name)) is not None:
            yield f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"
            yield from self._log(path, 0)
        else:
            yield from self._small_file(path)

    def _offset_file(self, path: Path, base_offset: int, suffix: str) -> Iterator[str]:
        options = self._options
        if suffix == paths.LOG_SUFFIX:
            yield f"Log starting offset: {base_offset}"
            yield from self._log(path, base_offset)
        elif suffix == paths.INDEX_SUFFIX:
            index = IndexFile.read(self._filesystem, path, base_offset)
            yield from dump_offset_index(index, options.index_mode, options.max_message_bytes, self._findings)
        elif suffix == paths.TIME_INDEX_SUFFIX:
            index = IndexFile.read(self._filesystem, path, base_offset)
            beside = path.with_suffix(paths.INDEX_SUFFIX)
            exists = self._filesystem.exists(beside)
            offset_index = IndexFile.read(self._filesystem, beside, base_offset) if exists else None
            yield from dump_time_index(index, offset_index, options.index_mode, self._findings)
        elif suffix == paths.TXN_INDEX_SUFFIX:
            index = IndexFile.read(self._filesystem, path, base_offset)
            yield from dump_transaction_index(index, self._findings)
        elif suffix == paths.SNAPSHOT_SUFFIX:
            yield from map(producer_line, parse_snapshot(self._filesystem.read_bytes(path)))
        else:
            self._unknown(path)

    def _log(self, path: Path, base_offset: int) -> Iterator[str]:
        file = self._filesystem.open_read(path)
        yield from dump_log(file, path, base_offset, self._log_options, self._findings)

    def _small_file(self, path: Path) -> Iterator[str]:
        if path.name == paths.LEADER_EPOCH_CHECKPOINT:
            for epoch, offset in checkpoints.parse_lines(self._filesystem.read_bytes(path)):
                yield f"epoch: {epoch} startOffset: {offset}"
        elif path.name in OFFSET_CHECKPOINTS:
            for partition, checkpoint in checkpoints.parse_offsets(self._filesystem.read_bytes(path)).items():
                yield f"topic: {partition.topic} partition: {partition.partition} offset: {checkpoint}"
        elif path.name == paths.PARTITION_METADATA:
            yield f"topicId: {uuid_to_text(checkpoints.parse_partition_metadata(self._filesystem.read_bytes(path)))}"
        elif path.name == paths.META_PROPERTIES:
            meta = MetaProperties.parse(self._filesystem.read_bytes(path))
            yield f"clusterId: {meta.cluster_id} nodeId: {meta.node_id} directoryId: {meta.directory_id}"
        elif path.name == paths.CLEAN_SHUTDOWN:
            yield f"brokerEpoch: {checkpoints.parse_clean_shutdown(self._filesystem.read_bytes(path))}"
        else:
            self._unknown(path)

    def _unknown(self, path: Path) -> None:
        self._findings.problem(path, "do not know how to read a file of this name")


def producer_line(producer: ProducerStateEntry) -> str:
    first_offset = producer.first_transaction_offset
    line = (
        f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} "
        f"coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: {optional_long(first_offset if first_offset >= 0 else None)} "
        f"lastTimestamp: {producer.last_timestamp} "
    )
    if producer.batches:
        batch = producer.batches[0]
        line += (
            f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
            f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
        )
    return line
