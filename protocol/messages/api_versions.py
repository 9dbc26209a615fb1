"""ApiVersions (18): which APIs and versions the broker speaks. Every client sends it first.

v1 adds the throttle time. v3 is flexible, names the client software (KIP-511) and tells features (KIP-584); v4 lets a
feature start at level 0; v5 lets the client check which cluster and node it reached (KIP-1242). The response header is
v0 in every version, as a client must be able to read it before it knows anything. A broker that does not know the
request's version answers in v0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, Int64, String


@message(key=18, kind="request", versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: String = field("3+", ignorable=True)
    client_software_version: String = field("3+", ignorable=True)
    cluster_id: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    node_id: Int32 = field("5+", default=-1, ignorable=True)


@struct
class ApiVersion:
    api_key: Int16 = field()
    min_version: Int16 = field()
    max_version: Int16 = field()


@struct
class SupportedFeatureKey:
    name: String = field("3+")
    min_version: Int16 = field("3+")
    max_version: Int16 = field("3+")


@struct
class FinalizedFeatureKey:
    name: String = field("3+")
    max_version_level: Int16 = field("3+")
    min_version_level: Int16 = field("3+")


@message(key=18, kind="response", versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: Int16 = field()
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", tag=3, default=False, ignorable=True)
