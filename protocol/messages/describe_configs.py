"""DescribeConfigs (32): configuration of topics, brokers, broker loggers and groups.

v1 replaces `is_default` by the source of a value and can list its synonyms (KIP-226), v3 adds types and documentation
(KIP-569), v4 is flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String


@struct
class DescribeConfigsResource:
    resource_type: Int8 = field()
    resource_name: String = field()
    configuration_keys: list[String] | None = field(nullable="0+")


@message(key=32, kind="request", versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = field()
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: String = field("1+")
    value: String | None = field("1+", nullable="0+")
    source: Int8 = field("1+")


@struct
class DescribeConfigsResourceResult:
    name: String = field()
    value: String | None = field(nullable="0+")
    read_only: Bool = field()
    is_default: Bool = field("0")
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: Bool = field()
    synonyms: list[DescribeConfigsSynonym] = field("1+", ignorable=True)
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: String | None = field("3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: list[DescribeConfigsResourceResult] = field()


@message(key=32, kind="response", versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = field()
    results: list[DescribeConfigsResult] = field()
