"""AlterClientQuotas (KIP-546): set or remove quota values of users, client ids and addresses, entity by entity.

A null entity name is the default entity. v1 is flexible. Kafka calls the entries of request and response alike
`EntryData`; here the response's bear its name in front.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Float64, Int16, Int32, String


@struct
class EntityData:
    entity_type: String = field()
    entity_name: String | None = field(nullable="0+")


@struct
class OpData:
    key: String = field()
    value: Float64 = field()
    remove: Bool = field()


@struct
class EntryData:
    entity: list[EntityData] = field()
    ops: list[OpData] = field()


@message(key=49, kind="request", versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[EntryData] = field()
    validate_only: Bool = field()


@struct
class AlterClientQuotasResponseEntryData:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    entity: list[EntityData] = field()


@message(key=49, kind="response", versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = field()
    entries: list[AlterClientQuotasResponseEntryData] = field()
