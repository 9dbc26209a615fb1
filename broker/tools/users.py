"""SCRAM users of a broker that is stopped: read and changed in its metadata store, under the lock of its log directory.

Before the first start of a broker there may be no directory: then it is made, so that the broker can start with a user.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from klamm.broker.controller import credentials
from klamm.broker.controller.credentials import Deletion, Upsertion
from klamm.broker.metadata import paths, security_nodes
from klamm.broker.metadata.image import MetadataImage
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import MetadataStore, StoreError
from klamm.broker.security.file_modes import make_log_dirs
from klamm.cli.users import CannotChange, NewCredential, User
from klamm.config import BrokerConfig
from klamm.protocol.scram import BY_NUMBER, ScramMechanism
from klamm.storage.log_dir import LogDir, LogDirError


class StoppedUsers:
    """The users in a store that nobody else has open."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def all_users(self) -> list[User]:
        found = security_nodes.load_scram(self._store)
        return [
            User(name, BY_NUMBER[mechanism].name, credential.iterations)
            for (name, mechanism), credential in sorted(found.items())
        ]

    def add(self, credential: NewCredential) -> None:
        upsertion = Upsertion(
            credential.name,
            credential.mechanism.number,
            credential.iterations,
            credential.salt,
            credential.salted_password,
        )
        self._change([], [upsertion])

    def delete(self, name: str, mechanism: ScramMechanism) -> None:
        self._change([Deletion(name, mechanism.number)], [])

    def _change(self, deletions: list[Deletion], upsertions: list[Upsertion]) -> None:
        image = MetadataImage(scram=security_nodes.load_scram(self._store))
        planned = credentials.plan(image, deletions, upsertions)
        for error in planned.errors.values():
            if error is not None:
                raise CannotChange(error.message)
        self._store.multi(planned.operations)


@contextmanager
def stopped_users(config: BrokerConfig) -> Iterator[StoppedUsers]:
    """Lock the first log directory, where the metadata are, and open its store. Raises CannotChange."""
    cluster_id = config["klamm.cluster.id"]
    make_log_dirs(config.log_dirs[:1], config.text("klamm.data.mode"))
    try:
        log_dir = LogDir.open(
            config.log_dirs[0], node_id=config.node_id, cluster_id=None if cluster_id is None else str(cluster_id)
        )
    except LogDirError as error:
        raise CannotChange(str(error)) from None
    try:
        path = log_dir.path / FILE_NAME
        if not path.exists() and log_dir.partitions_on_disk():
            raise CannotChange(f"{log_dir.path}: there is no {FILE_NAME} yet; start the broker on it once, and stop it")
        store = SqliteStore(path)
        try:
            if not store.exists(paths.SCRAM):
                store.create(paths.SCRAM, make_parents=True)
            yield StoppedUsers(store)
        finally:
            store.close()
    except StoreError as error:
        raise CannotChange(str(error)) from None
    finally:
        log_dir.leave()
