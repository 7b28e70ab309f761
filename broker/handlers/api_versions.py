"""ApiVersions (API key 18): lists the APIs with the versions that are served, and the feature levels.

The response derives from the table of handlers and from the finalized features. Its header has version 0 in every
version. A request of a version that is not served gets UNSUPPORTED_VERSION in a body of version 0, which every client
can read; it asks again with a version that is served (KIP-511). A client that means another cluster or node than this
one is told to bootstrap again (KIP-1242).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import ErrorCode
from oncelog.wire.header import API_VERSIONS_KEY
from oncelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext

SOFTWARE_NAME_VERSION = 3
NOT_GIVEN = -1
ZERO_MIN_FEATURES_VERSION = 4
"""The first version whose clients accept a supported feature with a lowest level of 0 (KAFKA-17011)."""


def handle(
    services: Services, request: ApiVersionsRequest | None, context: RequestContext
) -> ApiVersionsResponse:
    if request is None:
        handler = services.handlers[API_VERSIONS_KEY]
        return ApiVersionsResponse(
            ErrorCode.UNSUPPORTED_VERSION,
            [ApiVersion(API_VERSIONS_KEY, handler.min_version, handler.max_version)],
        )
    if context.api_version >= SOFTWARE_NAME_VERSION and not (
        _is_software_name(request.client_software_name) and _is_software_name(request.client_software_version)
    ):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    if context.api_version >= SOFTWARE_NAME_VERSION:
        context.connection.software = (request.client_software_name, request.client_software_version)
    error = misdirected(request, services.cluster.cluster_id, services.config.current.node_id)
    if error:
        return ApiVersionsResponse(error)
    features = services.metadata.features
    epoch, finalized = features.finalized(services.metadata.image)
    return ApiVersionsResponse(
        0,
        [
            ApiVersion(handler.api_key, handler.announced_min, handler.max_version)
            for handler in services.handlers.values()
        ],
        0,
        [
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in features.supported.items()
            if low > 0 or context.api_version >= ZERO_MIN_FEATURES_VERSION
        ],
        epoch,
        [FinalizedFeatureKey(name, level, level) for name, level in finalized.items()],
        False,
    )


def misdirected(request: ApiVersionsRequest, cluster_id: str, node_id: int) -> ErrorCode:
    """Return the error for a client that means another node, and NONE for the others.

    A client names the cluster and the node that it means, or neither: then it is bootstrapping.
    Source: ``KafkaApis.handleApiVersionsRequest``.
    """
    if (request.cluster_id is None) != (request.node_id == NOT_GIVEN):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is None or (request.cluster_id, request.node_id) == (cluster_id, node_id):
        return ErrorCode.NONE
    return ErrorCode.REBOOTSTRAP_REQUIRED


def _is_software_name(text: str) -> bool:
    """Return whether it has ASCII letters and digits only, ``-`` and ``.`` between them.

    Source: ``ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN``.
    """
    inner = text.replace("-", "a").replace(".", "a")
    return text.isascii() and inner.isalnum() and text[0].isalnum() and text[-1].isalnum()
