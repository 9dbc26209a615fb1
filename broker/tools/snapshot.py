"""Creation of a snapshot, while the broker runs or after it has stopped cleanly.

A running broker is not involved, and nothing is locked. The metadata are read at one moment, then each partition by
itself: a prefix of whole batches, up to the end at the moment when its last segment was copied. So each partition is in
the state that a start after `kill -9` at that moment would find, and all partitions are of about the same moment.

The directories of a stopped broker are locked meanwhile. After an unclean stop only the next start decides what a log
holds, so it must come first.

    <snapshot>/
    klamm-snapshot.json           written last: the contents; without it the snapshot is not complete
    <topic>-<partition>/          a clean prefix of each partition (`storage/copies/backup.py`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.image import MetadataImage, TopicImage
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import StoreError
from klamm.broker.tools import known_damage
from klamm.broker.tools.manifest import CannotBackUp, Manifest, PartitionEntry, TopicEntry, chosen
from klamm.config import BrokerConfig
from klamm.protocol.wire import uuid_to_text
from klamm.storage import checkpoints
from klamm.storage import paths as storage_paths
from klamm.storage.checkpoints import CheckpointError, MetaProperties
from klamm.storage.clock import Clock
from klamm.storage.copies.backup import BackupError, take_partition
from klamm.storage.copying import Copied
from klamm.storage.filesystem import Filesystem, Lock, describe, make_durable_directory, remove_tree, unlink_if_exists
from klamm.storage.paths import TopicPartition
from klamm.storage.scrub.scrub_state import KnownDamage


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result. ``gone`` are topics that were deleted meanwhile, ``damage`` was known before."""

    topic_count: int
    partition_count: int
    size: Copied
    gone: tuple[str, ...]
    damage: tuple[KnownDamage, ...]


def take_snapshot(
    config: BrokerConfig,
    target: Path,
    topics: Iterable[str] | None,
    *,
    filesystem: Filesystem,
    clock: Clock,
    pause: Callable[[], None],
) -> Snapshot:
    """Create the snapshot ``target`` of some topics: names or regular expressions; None for all but internal ones.

    Blocks. Raises CannotBackUp; the part of the target that was written is removed then.
    """
    try:
        _check_places(config, target, filesystem)
        with _lock_if_stopped(config.log_dirs, filesystem):
            return _take(config, target, topics, filesystem, clock, pause)
    except OSError as error:
        raise CannotBackUp(f"{error.filename or target}: {describe(error)}") from None
    except (StoreError, CheckpointError) as error:
        raise CannotBackUp(str(error)) from None


def _check_places(config: BrokerConfig, target: Path, filesystem: Filesystem) -> None:
    for path in config.log_dirs:
        if not filesystem.exists(path / storage_paths.META_PROPERTIES):
            raise CannotBackUp(f"{path}: no log directory of Klamm")
        if target.resolve().is_relative_to(path.resolve()):
            raise CannotBackUp(f"{target}: inside the log directory {path}, where only partitions may be")
    if not filesystem.exists(config.log_dirs[0] / FILE_NAME):
        raise CannotBackUp(f"{config.log_dirs[0]}: there is no {FILE_NAME}")
    if filesystem.exists(target) and filesystem.list_directory(target):
        raise CannotBackUp(f"{target}: not empty")


@contextmanager
def _lock_if_stopped(log_dirs: Sequence[Path], filesystem: Filesystem) -> Iterator[None]:
    with ExitStack() as stack:
        locks: list[Lock] = []
        for path in log_dirs:
            with suppress(BlockingIOError):
                lock = filesystem.lock_file(path / storage_paths.LOCK)
                stack.callback(lock.release)
                locks.append(lock)
                if not filesystem.exists(path / storage_paths.CLEAN_SHUTDOWN):
                    raise CannotBackUp(f"{path}: the broker does not run and has not stopped cleanly; start it first")
        yield


def _take(
    config: BrokerConfig,
    target: Path,
    topics: Iterable[str] | None,
    filesystem: Filesystem,
    clock: Clock,
    pause: Callable[[], None],
) -> Snapshot:
    image = _image(config.log_dirs[0] / FILE_NAME)
    names = chosen(image.topics, topics, lambda name: not image.topics[name].internal)
    if not names:
        raise CannotBackUp("there is no topic to take a snapshot of")
    log_starts = _log_starts(config.log_dirs, filesystem)
    meta = MetaProperties.parse(filesystem.read_bytes(config.log_dirs[0] / storage_paths.META_PROPERTIES))
    made: list[Path] = []
    entries: list[TopicEntry] = []
    gone: list[str] = []
    size = Copied()
    make_durable_directory(filesystem, target)
    try:
        for name in names:
            places = _places(image.topics[name], config.log_dirs, filesystem)
            made += [target / path.name for path in places]
            try:
                entry, taken = _take_topic(image, name, places, target, log_starts, filesystem, pause)
            except FileNotFoundError:
                if name in _image(config.log_dirs[0] / FILE_NAME).topics:
                    raise
                _remove(filesystem, [target / path.name for path in places])
                gone.append(name)
                continue
            entries.append(entry)
            size += taken
        damage = known_damage.take(filesystem, config.log_dirs, target, entries)
        Manifest(clock.wall_ms(), meta.cluster_id, config.node_id, tuple(entries)).write(filesystem, target)
    except (BackupError, OSError, CannotBackUp) as error:
        _remove(filesystem, made)
        with suppress(OSError):
            unlink_if_exists(filesystem, target / storage_paths.SCRUB)
        if isinstance(error, BackupError):
            raise CannotBackUp(str(error)) from None
        raise
    return Snapshot(len(entries), sum(len(entry.partitions) for entry in entries), size, tuple(gone), damage)


def _image(path: Path) -> MetadataImage:
    store = SqliteStore(path, read_only=True)
    try:
        image = codec.load_image(store)
        return image.without_topics(name for name in store.children(paths.DELETE_TOPICS) if name in image.topics)
    finally:
        store.close()


def _log_starts(log_dirs: Iterable[Path], filesystem: Filesystem) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for path in log_dirs:
        found |= checkpoints.read_offsets(filesystem, path / storage_paths.LOG_START_CHECKPOINT)
    return found


def _places(topic: TopicImage, log_dirs: Iterable[Path], filesystem: Filesystem) -> list[Path]:
    """Return the directory of each partition. Raises CannotBackUp when one is missing."""
    places = []
    for partition in topic.partitions:
        candidates = [storage_paths.partition_directory(path, topic.name, partition.index) for path in log_dirs]
        found = [path for path in candidates if filesystem.exists(path)]
        if len(found) != 1:
            where = "in no log directory" if not found else f"in {' and in '.join(str(path.parent) for path in found)}"
            raise CannotBackUp(f"{topic.name}-{partition.index} is {where}")
        places += found
    return places


def _take_topic(
    image: MetadataImage,
    name: str,
    places: Sequence[Path],
    target: Path,
    log_starts: dict[TopicPartition, int],
    filesystem: Filesystem,
    pause: Callable[[], None],
) -> tuple[TopicEntry, Copied]:
    topic = image.topics[name]
    size = Copied()
    partitions = []
    for index, place in enumerate(places):
        log_start_offset = log_starts.get(TopicPartition(name, index), 0)
        taken = take_partition(filesystem, place, target / place.name, log_start_offset=log_start_offset, pause=pause)
        size += taken.size
        partitions.append(PartitionEntry(index, taken.log_start_offset, taken.end_offset))
    entry = TopicEntry(name, uuid_to_text(topic.topic_id), dict(image.topic_config(name)), tuple(partitions))
    return entry, size


def _remove(filesystem: Filesystem, directories: Iterable[Path]) -> None:
    for path in directories:
        with suppress(OSError):
            remove_tree(filesystem, path)
