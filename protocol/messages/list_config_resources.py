"""ListConfigResources (74): the resources that have dynamic configs (KIP-1142).

v0 was published as ListClientMetricsResources (KIP-714), lists client metrics subscriptions only and has no types:
hence the default of `resource_type`, 16 = CLIENT_METRICS. v1 filters by resource type, an empty list meaning all.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String


@message(key=74, kind="request", versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[Int8] = field("1+")


@struct
class ConfigResource:
    resource_name: String = field()
    resource_type: Int8 = field("1+", default=16, ignorable=True)


@message(key=74, kind="response", versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    config_resources: list[ConfigResource] = field()
