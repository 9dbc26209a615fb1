"""UpdateFeatures (57): v0-2. Raises, lowers or removes finalized feature levels, all or none (KIP-584, KIP-778).

v0 has a flag for downgrades, v1 the type of the change, and can validate only; v2 has no results for single features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.controller.features import FeatureUpdate, UpgradeType
from klamm.protocol.errors import InvalidRequest, KafkaError
from klamm.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

UPGRADE_TYPE_FROM = 1
MAX_UPDATES = 1000  # fewer features exist
NO_RESULTS_FROM = 2


async def handle(broker: Broker, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    version = context.api_version
    if len(request.feature_updates) > MAX_UPDATES:
        raise InvalidRequest(f"{len(request.feature_updates)} updates, at most {MAX_UPDATES} are made at once")
    updates = [_update(update, version) for update in request.feature_updates]
    await broker.controller.update_features(updates, request.validate_only)
    response = UpdateFeaturesResponse(error_message=None)
    if version < NO_RESULTS_FROM:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates
        ]
    return response


def error_response(request: UpdateFeaturesRequest, error: KafkaError, version: int) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=int(error.code), error_message=f"No feature was updated, as one had an error: {error.message}"
    )


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade_type: int = update.upgrade_type
    if version < UPGRADE_TYPE_FROM:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, upgrade_type)
