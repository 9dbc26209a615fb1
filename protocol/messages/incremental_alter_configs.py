"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single configs (KIP-339).

`config_operation` is 0 SET, 1 DELETE, 2 APPEND, 3 SUBTRACT; the last two are for lists. v1 is flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    name: String = field()
    config_operation: Int8 = field()
    value: String | None = field(nullable="0+", sensitive=True)


@struct
class AlterConfigsResource:
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: list[AlterableConfig] = field()


@message(key=44, kind="request", versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = field()
    validate_only: Bool = field()


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    resource_type: Int8 = field()
    resource_name: String = field()


@message(key=44, kind="response", versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()
