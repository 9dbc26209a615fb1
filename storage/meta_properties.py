"""The owner of a log directory: `meta.properties`, compared with the node that opens it.

Apache Kafka writes version 1 (`node.id`). It wrote version 0 in the ZooKeeper era (`broker.id`): before 3.7 without a
`directory.id`, before 2.4 without a `cluster.id`. A directory that lacks them gets them here, as in Kafka, and that
Kafka can still read it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from klamm.protocol.wire import uuid_to_text
from klamm.storage import paths
from klamm.storage.checkpoints import CheckpointError, MetaProperties
from klamm.storage.filesystem import Filesystem, replace_file


class WrongOwner(Exception):
    """The directory belongs to another cluster or node, or does not name one: one line for the operator."""


def ensure_meta_properties(filesystem: Filesystem, path: Path, node_id: int, cluster_id: str | None) -> MetaProperties:
    """Read `meta.properties` and compare it with `node_id` and `cluster_id`; write it into a new directory.

    Raises WrongOwner, OSError.
    """
    file = path / paths.META_PROPERTIES
    try:
        found = MetaProperties.parse(filesystem.read_bytes(file))
    except FileNotFoundError:
        if cluster_id is None:
            cluster_id = uuid_to_text(uuid.uuid4().bytes)
        meta = MetaProperties(cluster_id, node_id, new_directory_id())
        replace_file(filesystem, file, meta.format())
        return meta
    except CheckpointError as error:
        raise WrongOwner(f"{file}: {error}") from error
    if found.node_id != node_id:
        raise WrongOwner(
            f"{file}: node.id={found.node_id}, but this is node {node_id}: set node.id={found.node_id} to start as it"
        )
    if not found.cluster_id:
        found = replace(found, cluster_id=cluster_id or uuid_to_text(uuid.uuid4().bytes), directory_id="")
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise WrongOwner(f"{file}: cluster.id={found.cluster_id}, but this is cluster {cluster_id}")
    if not found.directory_id:
        found = replace(found, directory_id=new_directory_id())
        replace_file(filesystem, file, found.format())
    return found


def known_cluster_id(filesystem: Filesystem, directories: Iterable[Path]) -> str | None:
    """Return the cluster id that directories of Apache Kafka name, for use in new directories.

    Return None when they name none. Return None, too, when one of them was ours before: its metadata holds the id.
    Raises WrongOwner.
    """
    known = None
    for path in directories:
        if filesystem.exists(path / paths.BOOT):
            return None
        try:
            meta = MetaProperties.parse(filesystem.read_bytes(path / paths.META_PROPERTIES))
            known = known or meta.cluster_id or None
        except OSError:
            continue  # new, or opening it will report the error
        except CheckpointError as error:
            raise WrongOwner(f"{path / paths.META_PROPERTIES}: {error}") from error
    return known


def new_directory_id() -> str:
    """Return a random uuid as text. It never begins with a dash, which command lines would take for an option."""
    while (text := uuid_to_text(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text
