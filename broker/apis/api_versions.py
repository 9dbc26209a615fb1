"""ApiVersions (18): v0-5. The APIs and versions of this broker, computed from the registry.

v3 is flexible, except for the header of its response, and carries the client's software name and version as well as the
features. v4 includes features with a minimum of 0, which v3 leaves out. v5 (KIP-1242) names the cluster and node that
the client expects. An unknown version gets a v0 response with UNSUPPORTED_VERSION, and the connection stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from klamm.broker.apis.registry import HANDLERS
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_FROM = 3
ZERO_MINIMUM_FROM = 4
IDENTITY_FROM = 5


def handle(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    version = context.api_version
    if version >= SOFTWARE_FROM:
        name, software_version = request.client_software_name, request.client_software_version
        if not SOFTWARE.fullmatch(name) or not SOFTWARE.fullmatch(software_version):
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST), api_keys=[])
        context.connection.client_software = (name, software_version)
    if version >= IDENTITY_FROM and not _is_us(broker, request):
        return ApiVersionsResponse(error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED), api_keys=[])
    response = ApiVersionsResponse(error_code=0, api_keys=_api_keys())
    if version >= SOFTWARE_FROM:
        features = broker.image.features
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(broker.controller.supported_features.items())
            if low > 0 or version >= ZERO_MINIMUM_FROM
        ]
        response.finalized_features_epoch = features.epoch
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(features.finalized.items())
        ]
    return response


def unsupported_version() -> ApiVersionsResponse:
    """Return the response to an unknown version: the error, and the supported versions of ApiVersions itself."""
    row = HANDLERS[ApiKey.API_VERSIONS]
    return ApiVersionsResponse(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION),
        api_keys=[ApiVersion(api_key=row.key, min_version=row.min_version, max_version=row.max_version)],
    )


def _api_keys() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=row.key, min_version=row.min_version, max_version=row.max_version)
        for row in HANDLERS.values()
    ]


def _is_us(broker: Broker, request: ApiVersionsRequest) -> bool:
    """Return whether the client reached the cluster and node that it expects (null and -1: no expectation)."""
    cluster_matches = request.cluster_id is None or request.cluster_id == broker.cluster_id
    return cluster_matches and (request.node_id < 0 or request.node_id == broker.node_id)
