"""SCRAM credentials of users: their changes by requests, and the checks of these requests (KIP-554).

A user of a request succeeds or fails as a whole, and may occur once. The client sends the salted password; the stored
keys are computed from it here, and the salted password is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from klamm.broker.metadata import paths, security_nodes
from klamm.broker.metadata.image import MetadataImage
from klamm.broker.metadata.store import Create, Delete, MetadataStore, NoNode, Operation, Set
from klamm.protocol.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from klamm.protocol.scram import BY_NUMBER, MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, credential_of
from klamm.protocol.wire import MAX_STRING_BYTES, fits_string

SECRET_BYTES = 32
MAX_SALT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Deletion:
    """The removal of a user's credential for a mechanism."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A new or changed credential of a user."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScramPlan:
    """`errors` has each user of the request once; the operations and the image are of those without an error."""

    errors: Mapping[str, KafkaError | None]
    operations: Sequence[Operation]
    image: MetadataImage


def plan(image: MetadataImage, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> ScramPlan:
    """Plan the changes of one request."""
    errors: dict[str, KafkaError | None] = {}
    changes: dict[str, tuple[int, ScramCredential | None]] = {}
    asked: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in asked:
        user = change.user
        if user in errors:
            changes.pop(user, None)
            error = DuplicateResource("A user credential cannot be altered twice in the same request")
            errors[user] = errors[user] or error
            continue
        try:
            _check_user(change)
            changes[user] = (change.mechanism, _credential(image, change))
            errors[user] = None
        except KafkaError as error:
            errors[user] = error.without_frames()
    operations = [_operation(image, user, *change) for user, change in changes.items()]
    changed = {(user, mechanism): credential for user, (mechanism, credential) in changes.items()}
    return ScramPlan(errors, operations, image.with_scram(changed))


def _check_user(change: Deletion | Upsertion) -> None:
    if not change.user:
        raise UnacceptableCredential("Username must not be empty")
    if not fits_string(change.user):
        raise UnacceptableCredential(f"a user name may have {MAX_STRING_BYTES} bytes of UTF-8")
    if change.mechanism not in BY_NUMBER:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")


def _credential(image: MetadataImage, change: Deletion | Upsertion) -> ScramCredential | None:
    if isinstance(change, Deletion):
        if (change.user, change.mechanism) not in image.scram:
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")
        return None
    mechanism = BY_NUMBER[change.mechanism]
    if change.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    if not 1 <= len(change.salt) <= MAX_SALT_BYTES:
        raise UnacceptableCredential(f"a salt has 1 to {MAX_SALT_BYTES} bytes, not {len(change.salt)}")
    if len(change.salted_password) != mechanism.size:
        raise UnacceptableCredential(f"a salted password of {mechanism.name} has {mechanism.size} bytes")
    return credential_of(mechanism, change.salted_password, change.salt, change.iterations)


def _operation(image: MetadataImage, user: str, mechanism: int, credential: ScramCredential | None) -> Operation:
    path = paths.scram(user, mechanism)
    if credential is None:
        return Delete(path)
    value = security_nodes.scram_value(user, mechanism, credential)
    return Set(path, value) if (user, mechanism) in image.scram else Create(path, value, make_parents=True)


def secret_of(store: MetadataStore, random_bytes: bytes) -> bytes:
    """Return the cluster's secret; `random_bytes` become it when there is none. Blocks; raises StoreError."""
    assert len(random_bytes) == SECRET_BYTES
    try:
        return store.get(paths.SECRET).value
    except NoNode:
        store.create(paths.SECRET, random_bytes, make_parents=True)
        return random_bytes
