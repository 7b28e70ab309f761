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

NO_NODE = -1
SOFTWARE_NAME_VERSION = 3
ZERO_MIN_FEATURES_VERSION = 4
"""The first version whose clients accept a supported feature with a lowest level of 0 (KAFKA-17011)."""


def handle(
    services: Services, request: ApiVersionsRequest | None, context: RequestContext
) -> ApiVersionsResponse:
    if request is None:
        row = services.handlers[API_VERSIONS_KEY]
        return ApiVersionsResponse(
            ErrorCode.UNSUPPORTED_VERSION,
            [ApiVersion(API_VERSIONS_KEY, row.min_version, row.max_version)],
        )
    connection = context.connection
    if not is_valid(request, context.api_version):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    if context.api_version >= SOFTWARE_NAME_VERSION:
        connection.software = (request.client_software_name, request.client_software_version)
    # Before the log-in Kafka's authenticator responds, which knows neither cluster nor node.
    is_logged_in = connection.must_log_in_since is None
    own = services.cluster.cluster_id, services.config.current.node_id
    if is_logged_in and is_misdirected(request, *own):
        return ApiVersionsResponse(ErrorCode.REBOOTSTRAP_REQUIRED)
    connection.knows_versions = True
    features = services.metadata.features
    epoch, finalized = features.finalized(services.metadata.image)
    return ApiVersionsResponse(
        0,
        [ApiVersion(row.api_key, row.announced_min, row.max_version) for row in services.handlers.values()],
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


def is_valid(request: ApiVersionsRequest, api_version: int) -> bool:
    """Return whether a client names the cluster and the node that it means, or neither, and its software well.

    Source: ``ApiVersionsRequest.isValid``.
    """
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return False
    return api_version < SOFTWARE_NAME_VERSION or (
        _is_software_name(request.client_software_name) and _is_software_name(request.client_software_version)
    )


def is_misdirected(request: ApiVersionsRequest, cluster_id: str, node_id: int) -> bool:
    """Return whether a client means another node than this one. One that names none is bootstrapping.

    Source: ``KafkaApis.handleApiVersionsRequest``.
    """
    return request.cluster_id is not None and (request.cluster_id, request.node_id) != (cluster_id, node_id)


def _is_software_name(text: str) -> bool:
    """Return whether it has ASCII letters and digits only, ``-`` and ``.`` between them.

    Source: ``ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN``.
    """
    inner = text.replace("-", "a").replace(".", "a")
    return text.isascii() and inner.isalnum() and text[0].isalnum() and text[-1].isalnum()
