"""ApiVersions (API key 18): what is served, in which versions, and the feature levels.

The answer derives from `HANDLERS` and from the finalized features. Its header is version 0 in every version; a
request of a version we do not know is answered with UNSUPPORTED_VERSION in the body of version 0, so that any client
can read it and come again (KIP-511).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.table import API_VERSIONS, HANDLERS
from oncelog.broker.metadata.features import finalized_features, supported_features
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

SOFTWARE_NAME_VERSION = 3
ZERO_MIN_FEATURES_VERSION = 4
"""The first version whose clients can read a supported feature with a lowest level of 0 (KAFKA-17011)."""


def handle(
    services: Services, request: ApiVersionsRequest | None, context: RequestContext
) -> ApiVersionsResponse:
    if request is None:
        own = HANDLERS[API_VERSIONS]
        return ApiVersionsResponse(
            ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(API_VERSIONS, own.min_version, own.max_version)]
        )
    if context.api_version >= SOFTWARE_NAME_VERSION and not (
        _is_software_word(request.client_software_name) and _is_software_word(request.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    epoch, finalized = finalized_features(services.metadata.image)
    return ApiVersionsResponse(
        0,
        [ApiVersion(row.api_key, row.announced_min, row.max_version) for row in HANDLERS.values()],
        0,
        [
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in supported_features().items()
            if low > 0 or context.api_version >= ZERO_MIN_FEATURES_VERSION
        ],
        epoch,
        [FinalizedFeatureKey(name, level, level) for name, level in finalized.items()],
        False,
    )


def _is_software_word(word: str) -> bool:
    """ASCII letters and digits, inside the word also ``-`` and ``.`` (``SOFTWARE_NAME_VERSION_PATTERN``)."""
    inner = word.replace("-", "a").replace(".", "a")
    return word.isascii() and inner.isalnum() and word[0].isalnum() and word[-1].isalnum()
