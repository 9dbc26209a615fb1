"""DescribeClientQuotas (KIP-546): the quotas of users, client ids and addresses that match a filter.

`match_type` 0 is an exact name, 1 the default entity, 2 any name. `strict` leaves out entities with more parts than
the filter names. v1 is flexible. A null entity name in the answer is the default entity.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Float64, Int8, Int16, Int32, String


@struct
class ComponentData:
    entity_type: String = field()
    match_type: Int8 = field()
    match: String | None = field(nullable="0+")


@message(key=48, kind="request", versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = field()
    strict: Bool = field()


@struct
class EntityData:
    entity_type: String = field()
    entity_name: String | None = field(nullable="0+")


@struct
class ValueData:
    key: String = field()
    value: Float64 = field()


@struct
class EntryData:
    entity: list[EntityData] = field()
    values: list[ValueData] = field()


@message(key=48, kind="response", versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    entries: list[EntryData] | None = field(nullable="0+")
