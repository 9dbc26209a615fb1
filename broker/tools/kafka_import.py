"""Import of a log directory of Apache Kafka: its topics, their ids, partitions and configs enter the metadata store.

The import runs at a start with a new metadata store, before anything else is written. It is one transaction, so a crash
leaves a directory that is still Kafka's or one that is wholly Klamm's. From then on Klamm's store rules, and
`__cluster_metadata-0` is never read again; it and all other files of KRaft alone stay as they are.

The sources of the topics are:
- `__cluster_metadata-0` (KRaft), in a log dir or in `metadata.log.dir`;
- else (the ZooKeeper era) the names of the partition directories and their `partition.metadata`. Settings were in
  ZooKeeper, so they are lost. A topic that the cleaner has compacted is a compacted topic; of the others nothing is
  deleted (`retention.ms=-1`, `retention.bytes=-1`) until an operator sets the right values.

A node of a larger cluster goes on alone: every partition with a replica here keeps only this replica. A partition with
its local replica in a log directory that is not configured is offline, like any lost one (`directory_assignments`).

A directory with `klamm.boot` was Klamm's before: if the store is gone, nothing is guessed from it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from klamm.broker.controller import client_quotas, configs, startup, topics
from klamm.broker.controller.secrets import secret_box
from klamm.broker.metadata import acl_nodes, codec, paths
from klamm.broker.metadata.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from klamm.broker.metadata.store import Create, MetadataStore, Operation
from klamm.broker.partitions.directory_assignments import Directories, encoded
from klamm.broker.quotas.alterations import check_value
from klamm.broker.quotas.entities import Entity
from klamm.broker.security.authorizer.acls import Acl
from klamm.broker.security.secret_box import SecretBox, Unsealable
from klamm.broker.tools import kraft_log
from klamm.broker.tools.cluster_state import ClusterState, KafkaTopic
from klamm.broker.tools.kraft_log import KraftLogError
from klamm.config import BrokerConfig, ConfigError
from klamm.config.secrets import holds_secret
from klamm.protocol.cluster_metadata import kinds
from klamm.protocol.cluster_metadata.access import DelegationTokenRecord, UserScramCredentialRecord
from klamm.protocol.errors import KafkaError
from klamm.protocol.wire import uuid_to_text
from klamm.storage import checkpoints
from klamm.storage import paths as storage_paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.filesystem import Filesystem, describe
from klamm.storage.log.producer_state_entry import SnapshotError, parse_snapshot
from klamm.storage.log.scan import batch_headers
from klamm.storage.log_dir import LogDir
from klamm.storage.paths import TopicPartition

log = logging.getLogger(__name__)

RESERVED_DIRECTORY_IDS = 100  # ids below are reserved: unassigned, lost, migrating
KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
MOST_NAMES = 10
PRODUCER_ID_MARGIN = 1_000_000
"""Ids that are skipped where the used ones are unknown: those of producers that no partition remembers."""


class CannotImport(Exception):
    """The directory is Kafka's and cannot be imported; one line for the operator. Nothing was changed."""


@dataclass(slots=True)
class Findings:
    """The metadata to import. ``elsewhere`` has log directories that are not here, by topic and partition."""

    source: str
    topics: list[TopicImage] = field(default_factory=list)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    client_quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)
    elsewhere: dict[str, dict[int, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    scram: list[UserScramCredentialRecord] = field(default_factory=list)
    acls: dict[bytes, Acl] = field(default_factory=dict)
    tokens: list[DelegationTokenRecord] = field(default_factory=list)


def import_kafka(
    store: MetadataStore,
    config: BrokerConfig,
    log_dirs: Sequence[LogDir],
    filesystem: Filesystem,
    random_bytes: Callable[[int], bytes],
) -> bool:
    """Import Kafka's metadata, if there are any. Return whether there were. Blocks. Raises CannotImport, StoreError,
    LogDirError.
    """
    if store.exists(paths.CLUSTER_ID):
        return False
    metadata_directory = _metadata_directory(config, log_dirs, filesystem)
    on_disk = _on_disk(log_dirs)
    if metadata_directory is None and not on_disk:
        return False
    ours = [log_dir.path for log_dir in log_dirs if filesystem.exists(log_dir.path / storage_paths.BOOT)]
    if ours:
        log.error(
            "%s: the metadata store is new, but %s shows that these log directories were Klamm's before: bring the "
            "store back, or, to have the topics that the directories name, remove %s and start again",
            ours[0], storage_paths.BOOT, storage_paths.BOOT,
        )  # fmt: skip
        return False
    try:
        if metadata_directory is not None:
            found = _from_kraft(metadata_directory, config, log_dirs, on_disk, filesystem)
        else:
            found = _from_directories(config, log_dirs, on_disk, filesystem, random_bytes)
    except (KraftLogError, CheckpointError) as error:
        raise CannotImport(str(error)) from None
    except OSError as error:
        raise CannotImport(describe(error)) from None
    store.multi(_operations(store, found, log_dirs[0].meta.cluster_id, config))
    partitions = sum(len(topic.partitions) for topic in found.topics)
    log.info(
        "imported from %s: topics=%d partitions=%d next_producer_id=%d acls=%d",
        found.source, len(found.topics), partitions, found.next_producer_id, len(found.acls),
    )  # fmt: skip
    return True


def _metadata_directory(config: BrokerConfig, log_dirs: Iterable[LogDir], filesystem: Filesystem) -> Path | None:
    own = config["metadata.log.dir"]
    places = [Path(str(own))] if own else []
    found = [
        directory / storage_paths.METADATA_LOG_DIRECTORY
        for directory in dict.fromkeys([*places, *(log_dir.path for log_dir in log_dirs)])
        if filesystem.exists(directory / storage_paths.METADATA_LOG_DIRECTORY)
    ]
    if len(found) > 1 and not own:
        names = " and ".join(map(str, found))
        raise CannotImport(f"{names}: name the one that Kafka used last with metadata.log.dir")
    return found[0] if found else None


def _on_disk(log_dirs: Iterable[LogDir]) -> dict[TopicPartition, LogDir]:
    found = {name: log_dir for log_dir in log_dirs for name in log_dir.partitions_on_disk()}
    found.pop(TopicPartition("__cluster_metadata", 0), None)
    return found


# -- KRaft ------------------------------------------------------------------------------------------------------


def _from_kraft(
    directory: Path,
    config: BrokerConfig,
    log_dirs: Sequence[LogDir],
    on_disk: Mapping[TopicPartition, LogDir],
    filesystem: Filesystem,
) -> Findings:
    state, end_offset = kraft_log.read_state(filesystem, directory)
    found = Findings(f"{directory} (end offset {end_offset})", next_producer_id=state.next_producer_id)
    found.acls = state.acls
    known_ids = {log_dir.directory_id for log_dir in log_dirs}
    foreign: list[str] = []
    absent: list[str] = []
    alone = 0
    for topic in sorted(state.topics.values(), key=lambda topic: topic.name):
        here = [index for index, partition in topic.partitions.items() if config.node_id in partition.replicas]
        if not here:
            foreign.append(topic.name)
            continue
        absent += [f"{topic.name}-{index}" for index in sorted(topic.partitions.keys() - set(here))]
        alone += sum(len(topic.partitions[index].replicas) > 1 for index in here)
        found.topics.append(_topic_image(topic, config.node_id))
        lost = {
            index: directory_id
            for index in here
            if TopicPartition(topic.name, index) not in on_disk
            and (directory_id := _directory_of(topic, index, config.node_id)) not in (None, *known_ids)
        }
        if lost:
            found.elsewhere[topic.name] = {index: str(directory_id) for index, directory_id in lost.items()}
        wanted = state.topic_configs.get(topic.name, {})
        found.topic_configs[topic.name] = _good_topic_config(topic.name, wanted, config)
        if wanted.get("remote.storage.enable") == "true":
            log.warning("topic %s: it is tiered; records only in remote storage are not imported", topic.name)
    found.broker_configs = _good_broker_configs(state, config)
    found.scram = list(state.scram.values())
    found.client_quotas = _good_client_quotas(state)
    found.tokens = list(state.tokens.values())
    _say(foreign, "topic(s) without a replica on this node are left out")
    _say(absent, "partition(s) without a replica on this node begin empty")
    if alone:
        log.warning("%d partition(s) had replicas on other nodes, too: the one here goes on alone", alone)
    for what, which in sorted(state.left_out.items()):
        if which:
            log.warning("%s: %d of them are not imported, Klamm has no place for them", what, len(which))
    return found


def _topic_image(topic: KafkaTopic, node_id: int) -> TopicImage:
    """Return the topic with this node as its only replica, and a new leader epoch: the leader is another program."""
    replicas = (node_id,)
    partitions = tuple(
        PartitionImage(index, node_id, max(topic.partitions[index].leader_epoch, -1) + 1, replicas, replicas)
        for index in range(len(topic.partitions))
    )
    return TopicImage(topic.name, topic.topic_id, partitions, topic.name in INTERNAL_TOPICS)


def _directory_of(topic: KafkaTopic, index: int, node_id: int) -> str | None:
    """Return the id of the log directory with this node's replica; None if it is not known."""
    partition = topic.partitions[index]
    place = partition.replicas.index(node_id)
    if place >= len(partition.directories):
        return None
    directory_id = partition.directories[place]
    return uuid_to_text(directory_id) if int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS else None


def _good_topic_config(name: str, wanted: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """Return the settings that are valid here, too."""
    good: dict[str, str] = {}
    for key, value in wanted.items():
        try:
            configs.check_topic({**good, key: value}, config)
            good[key] = value
        except KafkaError as error:
            log.warning("topic %s: %s=%s is not imported: %s", name, key, value, error.message)
    return good


def _good_broker_configs(state: ClusterState, config: BrokerConfig) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name in (configs.CLUSTER_WIDE, str(config.node_id)):
        for key, value in state.broker_configs.get(name, {}).items():
            try:
                configs.check_broker({key: value}, cluster_wide=name == configs.CLUSTER_WIDE)
                config.with_dynamic({key: value}, {})
            except (KafkaError, ConfigError) as error:
                reason = error.message if isinstance(error, KafkaError) else str(error)
                log.warning("broker %s: the dynamic config %s is not imported: %s", name or "default", key, reason)
                continue
            found.setdefault(name, {})[key] = value
    return found


def _good_client_quotas(state: ClusterState) -> dict[Entity, dict[str, float]]:
    found: dict[Entity, dict[str, float]] = {}
    for entity, values in state.client_quotas.items():
        for key, value in values.items():
            try:
                found.setdefault(entity, {})[key] = check_value(key, value)
            except KafkaError as error:
                log.warning("client quota %s=%s of %s is not imported: %s", key, value, entity, error.message)
    return {entity: values for entity, values in found.items() if values}


# -- the ZooKeeper era ------------------------------------------------------------------------------------------


def _from_directories(
    config: BrokerConfig,
    log_dirs: Sequence[LogDir],
    on_disk: Mapping[TopicPartition, LogDir],
    filesystem: Filesystem,
    random_bytes: Callable[[int], bytes],
) -> Findings:
    found = Findings(f"the partition directories in {', '.join(str(log_dir.path) for log_dir in log_dirs)}")
    compacted = _compacted(log_dirs, filesystem)
    by_topic: dict[str, dict[int, Path]] = {}
    for name, log_dir in on_disk.items():
        directory = storage_paths.partition_directory(log_dir.path, name.topic, name.partition)
        by_topic.setdefault(name.topic, {})[name.partition] = directory
    absent: list[str] = []
    for topic, directories in sorted(by_topic.items()):
        topic_id = _common_topic_id(topic, directories.values(), filesystem) or startup.new_uuid(random_bytes)
        replicas = (config.node_id,)
        partitions = []
        for index in range(max(directories) + 1):
            epoch = -1
            if index in directories:
                epoch = _last_epoch(directories[index], filesystem)
            else:
                absent.append(f"{topic}-{index}")
            partitions.append(PartitionImage(index, config.node_id, epoch + 1, replicas, replicas))
        found.topics.append(TopicImage(topic, topic_id, tuple(partitions), topic in INTERNAL_TOPICS))
        if topic in INTERNAL_TOPICS:
            found.topic_configs[topic] = {key: str(v) for key, v in configs.automatic_topic(topic, config).configs}
        elif topic in compacted:
            found.topic_configs[topic] = {"cleanup.policy": "compact"}
        else:
            found.topic_configs[topic] = dict(KEPT_FOR_EVER)
    found.next_producer_id = _highest_producer_id(log_dirs, on_disk, filesystem) + 1 + PRODUCER_ID_MARGIN
    log.warning(
        "the settings of the topics are not known here, they were in ZooKeeper: those that were compacted stay so, "
        "the others have retention.ms=-1 and retention.bytes=-1 until you set them: nothing is deleted on a guess"
    )
    _say(absent, "partition(s) are not in these log directories, and begin empty")
    return found


def _compacted(log_dirs: Iterable[LogDir], filesystem: Filesystem) -> set[str]:
    """Return the topics in the cleaner's checkpoints."""
    found: set[str] = set()
    for log_dir in log_dirs:
        path = log_dir.path / storage_paths.CLEANER_CHECKPOINT
        found |= {name.topic for name in checkpoints.read_offsets(filesystem, path)}
    return found


def _common_topic_id(topic: str, directories: Iterable[Path], filesystem: Filesystem) -> bytes | None:
    """Return the topic id of most partitions; None if none has an id, as before Kafka 2.8."""
    ids: Counter[bytes] = Counter()
    for directory in directories:
        path = directory / storage_paths.PARTITION_METADATA
        try:
            ids[checkpoints.parse_partition_metadata(filesystem.read_bytes(path))] += 1
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            log.error("%s: %s", path, error)
    if len(ids) > 1:
        log.error("topic %s: its partitions have %d topic ids; those with a rare one are not served", topic, len(ids))
    return ids.most_common(1)[0][0] if ids else None


def _highest_producer_id(
    log_dirs: Iterable[LogDir], on_disk: Mapping[TopicPartition, LogDir], filesystem: Filesystem
) -> int:
    """Return the highest id of all producers that the partitions remember; -1 if there is none."""
    highest = -1
    for name, log_dir in on_disk.items():
        directory = storage_paths.partition_directory(log_dir.path, name.topic, name.partition)
        names = [entry.name for entry in filesystem.list_directory(directory)]
        for file in names:
            if (storage_paths.parse_offset_file(file) or (0, ""))[1] == storage_paths.SNAPSHOT_SUFFIX:
                with suppress(SnapshotError):
                    producers = parse_snapshot(filesystem.read_bytes(directory / file))
                    highest = max(highest, *(producer.producer_id for producer in producers), -1)
        if not log_dir.was_clean:  # the snapshot at the end is missing
            logs = [file for file in names if (storage_paths.parse_offset_file(file) or (0, ""))[1] == ".log"]
            file_of_last = filesystem.open_read(directory / max(logs)) if logs else None
            if file_of_last is not None:
                heads_of_last = batch_headers(file_of_last, 0, file_of_last.size())
                highest = max(highest, *(head.producer_id for _, head in heads_of_last), -1)
    return highest


def _last_epoch(directory: Path, filesystem: Filesystem) -> int:
    try:
        rows = checkpoints.parse_lines(filesystem.read_bytes(directory / storage_paths.LEADER_EPOCH_CHECKPOINT))
        return max((int(row[0]) for row in rows), default=-1)
    except (FileNotFoundError, CheckpointError, ValueError, IndexError):
        return -1  # rebuilt from the batches when the log is opened


# -- writing to the store ---------------------------------------------------------------------------------------


def _operations(store: MetadataStore, found: Findings, cluster_id: str, config: BrokerConfig) -> list[Operation]:
    operations: list[Operation] = [Create(path, make_parents=True) for path in paths.SKELETON if not store.exists(path)]
    for topic in found.topics:
        operations += topics.creation(topic, found.topic_configs.get(topic.name, {}), 0)
        elsewhere: Directories | None = found.elsewhere.get(topic.name)
        if elsewhere:
            path = paths.directories(topic.name, config.node_id)
            operations.append(Create(path, encoded(elsewhere), make_parents=True))
    box = secret_box(config)
    for name, values in found.broker_configs.items():
        operations.append(Create(paths.broker_config(name), codec.config_value(_sealed(box, name, values))))
    for record in found.scram:
        path = paths.scram(record.name, record.mechanism)
        operations.append(Create(path, kinds.encode(record), make_parents=True))
    operations += [acl_nodes.creation(acl_id, acl) for acl_id, acl in found.acls.items()]
    for entity, quotas in found.client_quotas.items():
        operations += client_quotas.creation(entity, quotas)
    for token in found.tokens:
        operations.append(Create(paths.token(token.token_id), kinds.encode(token), make_parents=True))
    if found.next_producer_id:
        operations.append(startup.producer_ids_given(config.node_id, found.next_producer_id))
    operations.append(Create(paths.CLUSTER_ID, paths.to_json({"version": "1", "id": cluster_id}), make_parents=True))
    return operations


def _sealed(box: SecretBox, name: str, values: Mapping[str, str]) -> dict[str, str]:
    """The config as it is stored; without a key for its passwords they are left out."""
    try:
        return box.sealed(name, values)
    except Unsealable as error:
        left_out = sorted(key for key in values if holds_secret(key))
        log.warning("broker %s: %s not taken over: %s", name or "default", ", ".join(left_out), error)
        return {key: value for key, value in values.items() if not holds_secret(key)}


def _say(names: Sequence[str], what: str) -> None:
    if names:
        more = ", ..." if len(names) > MOST_NAMES else ""
        log.warning("%d %s: %s%s", len(names), what, ", ".join(names[:MOST_NAMES]), more)
