"""UpdateFeatures (57): raise, lower or remove the finalized level of features (KIP-584).

v1 replaces `allow_downgrade` by `upgrade_type` (1 upgrade, 2 safe downgrade, 3 unsafe downgrade) and adds
`validate_only` (KIP-778). Features change all together or not at all since v2, so its answer has no results for
single features.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String


@struct
class FeatureUpdateKey:
    feature: String = field()
    max_version_level: Int16 = field()
    allow_downgrade: Bool = field("0")
    upgrade_type: Int8 = field("1+", default=1)


@message(key=57, kind="request", versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = field(default=60_000)
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: Bool = field("1+", default=False)


@struct
class UpdatableFeatureResult:
    feature: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")


@message(key=57, kind="response", versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    results: list[UpdatableFeatureResult] = field("0-1", ignorable=True)
