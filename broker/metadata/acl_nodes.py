"""ACLs in the store: the node `/acls/<id>` holds the bytes of Kafka's AccessControlEntryRecord, with its frame."""

from __future__ import annotations

from klamm.broker.metadata import paths
from klamm.broker.metadata.store import Create, MetadataStore, StoreCorrupt
from klamm.broker.security.authorizer.acls import Acl
from klamm.protocol.cluster_metadata import kinds
from klamm.protocol.cluster_metadata.access import AccessControlEntryRecord
from klamm.protocol.wire import Malformed


def record(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def acl_of(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def creation(acl_id: bytes, acl: Acl) -> Create:
    return Create(paths.acl(acl_id), kinds.encode(record(acl_id, acl)), make_parents=True)


def load(store: MetadataStore) -> dict[bytes, Acl]:
    """Load all ACLs by their id. Raises StoreError, in particular StoreCorrupt."""
    found = {}
    for path, node in store.subtree(paths.ACLS):
        try:
            message = kinds.decode(node.value).message
        except Malformed as error:
            raise StoreCorrupt(f"metadata node {path} is no ACL: {error}") from None
        if not isinstance(message, AccessControlEntryRecord):
            raise StoreCorrupt(f"metadata node {path} is no ACL but a {type(message).__name__}")
        found[message.id] = acl_of(message)
    return found
