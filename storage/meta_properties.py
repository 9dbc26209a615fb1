"""Whose a log directory is: `meta.properties`, held against the node that wants it.

Apache Kafka writes version 1 (`node.id`), and wrote version 0 in the ZooKeeper era (`broker.id`); before 3.7 without a
`directory.id`, before 2.4 without a `cluster.id`. A directory without them gets them here, as Kafka does it itself, and
stays readable for that Kafka.
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
    """The directory belongs to somebody else, or does not say to whom; one line for the operator."""


def ensure_meta_properties(filesystem: Filesystem, path: Path, node_id: int, cluster_id: str | None) -> MetaProperties:
    """Read `meta.properties` and hold it against what the caller is; write it into a new directory.

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
            f"{file}: node.id={found.node_id}, but this is node {node_id}: set node.id={found.node_id} to go on as it"
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
    """The cluster that directories of Apache Kafka name, for those that are new beside them.

    None when they name none, and when one was ours before: then ours must say. Raises WrongOwner.
    """
    known = None
    for path in directories:
        if filesystem.exists(path / paths.BOOT):
            return None
        try:
            meta = MetaProperties.parse(filesystem.read_bytes(path / paths.META_PROPERTIES))
            known = known or meta.cluster_id or None
        except OSError:
            continue  # new, or something that opening it will tell
        except CheckpointError as error:
            raise WrongOwner(f"{path / paths.META_PROPERTIES}: {error}") from error
    return known


def new_directory_id() -> str:
    """The text of a random uuid that does not begin with a dash, which command lines would take for an option."""
    while (text := uuid_to_text(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text
