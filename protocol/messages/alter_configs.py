"""AlterConfigs (33): replace all dynamic configs of topics, brokers and other resources (KIP-133).

A config that is not named falls back to its default, which is why IncrementalAlterConfigs took over. From v1 the
response is sent before a throttled connection is muted (KIP-219). v2 is flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    name: String = field()
    value: String | None = field(nullable="0+", sensitive=True)


@struct
class AlterConfigsResource:
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: list[AlterableConfig] = field()


@message(key=33, kind="request", versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = field()
    validate_only: Bool = field()


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    resource_type: Int8 = field()
    resource_name: String = field()


@message(key=33, kind="response", versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: Int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()
