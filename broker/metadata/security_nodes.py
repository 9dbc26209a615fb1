"""Credentials, delegation tokens and client quotas in the store: each node holds the bytes of one of Kafka's records.

Most clusters have none, so this is imported when the first node of a kind is read or made.
"""

from __future__ import annotations

from typing import Any

from klamm.broker.metadata import paths
from klamm.broker.metadata.store import MetadataStore, shape
from klamm.broker.security.tokens import DelegationToken
from klamm.protocol.cluster_metadata import kinds
from klamm.protocol.cluster_metadata.access import (
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    UserScramCredentialRecord,
)
from klamm.protocol.schema import Message
from klamm.protocol.scram import ScramCredential


def scram_value(user: str, mechanism: int, credential: ScramCredential) -> bytes:
    """Return the value of a SCRAM credential's node."""
    return kinds.encode(scram_record(user, mechanism, credential))


def scram_record(user: str, mechanism: int, credential: ScramCredential) -> UserScramCredentialRecord:
    """Return the credential as a record of Kafka's metadata."""
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def token_value(token: DelegationToken) -> bytes:
    """The value of a delegation token's node."""
    return kinds.encode(token_record(token))


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    """The token as Kafka's metadata have it."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    """The token of a record."""
    return DelegationToken(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def load_scram(store: MetadataStore) -> dict[tuple[str, int], ScramCredential]:
    """Load the SCRAM credentials, by user and number of the mechanism."""
    found = {}
    for path, node in store.subtree(paths.SCRAM):
        with shape(path):
            record = kinds.decode(node.value).message
            if not isinstance(record, UserScramCredentialRecord):
                raise TypeError(record)
            found[record.name, record.mechanism] = ScramCredential(
                record.salt, record.stored_key, record.server_key, record.iterations
            )
    return found


def client_quota_value(entity: tuple[tuple[str, str | None], ...], key: str, value: float) -> bytes:
    """The value of the node of one quota."""
    return kinds.encode(client_quota_record(entity, key, value))


def client_quota_record(entity: tuple[tuple[str, str | None], ...], key: str, value: float) -> Message:
    """One quota as a record of the cluster metadata."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value)


def load_client_quotas(store: MetadataStore) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """All client quotas, by entity."""
    found: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
    for path, node in store.subtree(paths.CLIENT_QUOTAS):
        if not node.value:
            continue  # the node above the values of an entity
        with shape(path):
            record: Any = kinds.decode(node.value).message
            entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
            found.setdefault(entity, {})[record.key] = record.value
    return found


def load_tokens(store: MetadataStore) -> dict[str, DelegationToken]:
    """The delegation tokens, by id."""
    found = {}
    for path, node in store.subtree(paths.TOKENS):
        with shape(path):
            record = kinds.decode(node.value).message
            if not isinstance(record, DelegationTokenRecord):
                raise TypeError(record)
            found[record.token_id] = token_of(record)
    return found
