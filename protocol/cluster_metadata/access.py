"""Access control and limits: ACLs, SCRAM credentials, delegation tokens, quotas."""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Bool, Bytes, Float64, Int8, Int32, Int64, String, Uuid


@message(key=18, kind="metadata", versions="0", flexible="0+")
class AccessControlEntryRecord(Message):
    id: Uuid = field()
    resource_type: Int8 = field()
    resource_name: String = field()
    pattern_type: Int8 = field()
    principal: String = field()
    host: String = field()
    operation: Int8 = field()
    permission_type: Int8 = field()


@message(key=19, kind="metadata", versions="0", flexible="0+")
class RemoveAccessControlEntryRecord(Message):
    id: Uuid = field()


@struct
class EntityData:
    entity_type: String = field()
    entity_name: String | None = field(nullable="0+")


@message(key=14, kind="metadata", versions="0", flexible="0+")
class ClientQuotaRecord(Message):
    entity: list[EntityData] = field()
    key: String = field()
    value: Float64 = field()
    remove: Bool = field()


@message(key=11, kind="metadata", versions="0", flexible="0+")
class UserScramCredentialRecord(Message):
    name: String = field()
    mechanism: Int8 = field()
    salt: Bytes = field(sensitive=True)
    stored_key: Bytes = field(sensitive=True)
    server_key: Bytes = field(sensitive=True)
    iterations: Int32 = field()


@message(key=22, kind="metadata", versions="0", flexible="0+")
class RemoveUserScramCredentialRecord(Message):
    name: String = field()
    mechanism: Int8 = field()


@message(key=10, kind="metadata", versions="0", flexible="0+")
class DelegationTokenRecord(Message):
    owner: String = field()
    requester: String = field()
    renewers: list[String] = field()
    issue_timestamp: Int64 = field()
    max_timestamp: Int64 = field()
    expiration_timestamp: Int64 = field()
    token_id: String = field()


@message(key=26, kind="metadata", versions="0", flexible="0+")
class RemoveDelegationTokenRecord(Message):
    token_id: String = field()
