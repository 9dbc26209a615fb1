"""`klamm export-kafka`: a log directory on which Apache Kafka 4.4 starts at once, with all of Klamm's data.

    <target>/
      <topic>-<partition>/                 a copy of each partition (`storage/copying.py`), groups and transactions too
      __cluster_metadata-0/                one snapshot: features, topics with their ids, partitions, configs, ACLs,
        00000000000000001000-0000000001.checkpoint       quotas, and the next unused producer id
      recovery-point-offset-checkpoint ... the checkpoints of all of Klamm's log dirs together
      .kafka_cleanshutdown                 saves Kafka the checks that Klamm has made
      meta.properties                      written last: without it Kafka treats the directory as incomplete

The export locks the directories of a stopped broker. After an unclean stop it first recovers the logs, as a start does.
It changes nothing else in them, and shares no file with Kafka that Kafka changes in place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from klamm.broker.controller.secrets import readable, secret_box
from klamm.broker.metadata import acl_nodes, codec, paths, security_nodes
from klamm.broker.metadata.image import MetadataImage, TopicImage
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import MetadataStore, StoreError
from klamm.broker.tools import kraft_log
from klamm.broker.tools.cluster_state import BROKER_RESOURCE, TOPIC_RESOURCE
from klamm.config import BrokerConfig
from klamm.protocol.cluster_metadata.cluster import FeatureLevelRecord, ProducerIdsRecord
from klamm.protocol.cluster_metadata.topics import ConfigRecord, PartitionRecord, TopicRecord
from klamm.protocol.schema import Message
from klamm.protocol.wire import uuid_from_text, uuid_to_text
from klamm.storage import checkpoints
from klamm.storage import paths as storage_paths
from klamm.storage.checkpoints import CheckpointError, MetaProperties
from klamm.storage.clock import Clock, SystemClock
from klamm.storage.copying import Copied, copy_partition
from klamm.storage.filesystem import Filesystem, OsFilesystem, describe, make_durable_directory, replace_file
from klamm.storage.log_dir import LogDir, LogDirError
from klamm.storage.meta_properties import new_directory_id
from klamm.storage.paths import TopicPartition

log = logging.getLogger(__name__)

FEATURES: Mapping[str, int] = {
    "metadata.version": 33,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}
"""The features that `kafka-storage format` of Apache Kafka 4.4 finalizes."""

MIN_IN_SYNC = "min.insync.replicas"  # eligible leader replicas need it for the whole cluster
SNAPSHOT_OFFSET, SNAPSHOT_EPOCH = 1000, 1  # any: Kafka's log begins after it
OWN_KEYS = "klamm."
CHECKPOINTS = (
    storage_paths.RECOVERY_POINT_CHECKPOINT,
    storage_paths.LOG_START_CHECKPOINT,
    storage_paths.HIGH_WATERMARK_CHECKPOINT,
    storage_paths.CLEANER_CHECKPOINT,
)
MOST_NAMES = 10


class CannotExport(Exception):
    """The export failed; one line for the operator. The part of the target that was written is not a whole log
    directory.
    """


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export, with the ids that Kafka must start with."""

    cluster_id: str
    node_id: int
    topic_count: int
    partition_count: int
    size: Copied


def export_kafka(config: BrokerConfig, target: Path, clock: Clock | None = None) -> Exported:
    """Write the log directory `target`. Blocks. Raises CannotExport."""
    clock = clock if clock is not None else SystemClock()
    filesystem = OsFilesystem()
    try:
        _check_places(config, target, filesystem)
        with _closed_cleanly(config, filesystem) as log_dirs:
            return _export(config, target, clock, filesystem, log_dirs)
    except OSError as error:
        raise CannotExport(describe(error)) from None
    except (LogDirError, StoreError, CheckpointError) as error:
        raise CannotExport(str(error)) from None


def _check_places(config: BrokerConfig, target: Path, filesystem: Filesystem) -> None:
    for path in config.log_dirs:
        if not filesystem.exists(path / storage_paths.META_PROPERTIES):
            raise CannotExport(f"{path}: no log directory of Klamm")
        if target.resolve().is_relative_to(path.resolve()):
            raise CannotExport(f"{target}: inside the log directory {path}; Kafka refuses what it does not know there")
    if not filesystem.exists(config.log_dirs[0] / FILE_NAME):
        raise CannotExport(f"{config.log_dirs[0]}: there is no {FILE_NAME}")
    if filesystem.exists(target) and filesystem.list_directory(target):
        raise CannotExport(f"{target}: not empty")


@contextmanager
def _closed_cleanly(config: BrokerConfig, filesystem: Filesystem) -> Iterator[list[LogDir]]:
    """Yield the log directories, locked; after an unclean stop their logs are recovered first."""
    for is_recovered in (False, True):
        with ExitStack() as stack:
            log_dirs: list[LogDir] = []
            for path in config.log_dirs:
                cluster_id = log_dirs[0].meta.cluster_id if log_dirs else None
                log_dir = LogDir.open(path, node_id=config.node_id, cluster_id=cluster_id, filesystem=filesystem)
                log_dirs.append(log_dir)
                stack.callback(log_dir.leave)
            unclean = [str(each.path) for each in log_dirs if not (each.was_clean and _is_settled(each, filesystem))]
            if not unclean:
                yield log_dirs
                return
        if is_recovered:
            raise CannotExport(f"{unclean[0]}: a partition is offline, so it does not close cleanly; repair it first")
        log.info("%s: not closed cleanly, recovering", ", ".join(unclean))
        _recover(config)


def _is_settled(log_dir: LogDir, filesystem: Filesystem) -> bool:
    """Return whether no compaction is half-way: its files would be missing in a copy."""
    directories = (log_dir.path / str(name) for name in log_dir.partitions_on_disk())
    return not any(filesystem.exists(directory / storage_paths.COMPACTION_MANIFEST) for directory in directories)


def _recover(config: BrokerConfig) -> None:
    """Start and stop the broker without serving clients."""
    from klamm.broker.server import CannotStart, Server

    server = Server(config)
    try:
        server.open()
    except CannotStart as error:
        server.leave()
        raise CannotExport(str(error)) from None
    server.close()


def _export(
    config: BrokerConfig, target: Path, clock: Clock, filesystem: Filesystem, log_dirs: list[LogDir]
) -> Exported:
    store = SqliteStore(log_dirs[0].path / FILE_NAME)
    try:
        image = readable(_image(store), secret_box(config))
        next_producer_id = _next_producer_id(store)
    finally:
        store.close()
    places = _places(image, log_dirs)
    directory_id = uuid_from_text(new_directory_id())
    make_durable_directory(filesystem, target)
    size = Copied()
    for name, log_dir in places.items():
        directory = str(name)
        size += copy_partition(filesystem, log_dir.path / directory, target / directory)
    _write_checkpoints(filesystem, target, places)
    records = list(_records(image, config.node_id, next_producer_id, directory_id))
    metadata = target / storage_paths.METADATA_LOG_DIRECTORY
    filesystem.make_directories(metadata)
    snapshot = kraft_log.snapshot(records, now_ms=clock.wall_ms(), epoch=SNAPSHOT_EPOCH)
    replace_file(filesystem, metadata / kraft_log.checkpoint_name(SNAPSHOT_OFFSET, SNAPSHOT_EPOCH), snapshot)
    replace_file(filesystem, target / storage_paths.CLEAN_SHUTDOWN, checkpoints.format_clean_shutdown(-1))
    cluster_id = log_dirs[0].meta.cluster_id
    meta = MetaProperties(cluster_id, config.node_id, uuid_to_text(directory_id))
    replace_file(filesystem, target / storage_paths.META_PROPERTIES, meta.format())
    return Exported(cluster_id, config.node_id, len(image.topics), sum(1 for _ in _partitions(image)), size)


def _image(store: MetadataStore) -> MetadataImage:
    """Return the image without topics that are being deleted."""
    image = codec.load_image(store)
    return image.without_topics(name for name in store.children(paths.DELETE_TOPICS) if name in image.topics)


def _next_producer_id(store: MetadataStore) -> int:
    if not store.exists(paths.PRODUCER_ID_BLOCK):
        return 0
    value = paths.from_json(paths.PRODUCER_ID_BLOCK, store.get(paths.PRODUCER_ID_BLOCK).value)
    return int(str(value["block_end"])) + 1


def _places(image: MetadataImage, log_dirs: list[LogDir]) -> dict[TopicPartition, LogDir]:
    """Return the log directory of each partition. Raises CannotExport when one is missing, or there twice."""
    found: dict[TopicPartition, LogDir] = {}
    for log_dir in log_dirs:
        for name in log_dir.partitions_on_disk():
            if name in found:
                raise CannotExport(f"{name} is in {found[name].path} and in {log_dir.path}; keep one of them")
            found[name] = log_dir
    wanted = set(_partitions(image))
    missing = sorted(str(name) for name in wanted - found.keys())
    if missing:
        more = ", ..." if len(missing) > MOST_NAMES else ""
        raise CannotExport(f"{len(missing)} partition(s) are missing: {', '.join(missing[:MOST_NAMES])}{more}")
    for name in sorted(found.keys() - wanted, key=str):
        log.warning("%s: on disk but not in the metadata, left out", name)
    return {name: found[name] for name in sorted(wanted, key=lambda name: (name.topic, name.partition))}


def _partitions(image: MetadataImage) -> Iterator[TopicPartition]:
    for topic in image.topics.values():
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.index)


def _write_checkpoints(filesystem: Filesystem, target: Path, places: Mapping[TopicPartition, LogDir]) -> None:
    for name in CHECKPOINTS:
        offsets: dict[TopicPartition, int] = {}
        for log_dir in set(places.values()):
            known = checkpoints.read_offsets(filesystem, log_dir.path / name)
            offsets |= {key: offset for key, offset in known.items() if places.get(key) is log_dir}
        checkpoints.write_offsets(filesystem, target / name, offsets)


# -- the metadata -----------------------------------------------------------------------------------------------


def _records(image: MetadataImage, node_id: int, next_producer_id: int, directory_id: bytes) -> Iterator[Message]:
    for name, level in FEATURES.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    broker_configs = dict(image.broker_configs)
    broker_configs[""] = {MIN_IN_SYNC: "1", **broker_configs.get("", {})}
    for name, values in broker_configs.items():
        yield from _configs(BROKER_RESOURCE, name, values)
    for topic in image.topics.values():
        yield from _topic_records(topic, node_id, directory_id)
        yield from _configs(TOPIC_RESOURCE, topic.name, image.topic_config(topic.name))
    for (user, mechanism), credential in image.scram.items():
        yield security_nodes.scram_record(user, mechanism, credential)
    for acl_id, acl in image.acls.items():
        yield acl_nodes.record(acl_id, acl)
    for entity, quotas in image.client_quotas.items():
        for key, value in quotas.items():
            yield security_nodes.client_quota_record(entity, key, value)
    for token in image.tokens.values():
        yield security_nodes.token_record(token)
    if next_producer_id:
        yield ProducerIdsRecord(broker_id=node_id, next_producer_id=next_producer_id)


def _topic_records(topic: TopicImage, node_id: int, directory_id: bytes) -> Iterator[Message]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for partition in topic.partitions:
        yield PartitionRecord(
            partition_id=partition.index,
            topic_id=topic.topic_id,
            replicas=[node_id],
            isr=[node_id],
            leader=node_id,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=0,
            directories=[directory_id],
        )


def _configs(resource_type: int, name: str, values: Mapping[str, str]) -> Iterator[Message]:
    for key, value in values.items():
        if key.startswith(OWN_KEYS):
            log.warning("%s: %s=%s is Klamm's own, left out", name or "default broker", key, value)
        else:
            yield ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
