"""ApiVersions through a proxy: upstream's rows, without the APIs and versions that cannot pass.

An API that the proxy can decode has the versions that both sides know. An API that is unknown here passes unread with
upstream's versions, unless its responses have addresses or an interceptor wants unknown APIs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.proxy.apis import READ_RESPONSES
from oncelog.wire.errors import ErrorCode
from oncelog.wire.header import API_VERSIONS_KEY
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable


def announced_rows(rows: Iterable[ApiVersion], *, passes_unknown: bool) -> list[ApiVersion]:
    """Return the rows for clients. ``rows`` are upstream's; ``passes_unknown``: no interceptor wants unknown APIs."""
    announced = []
    for row in rows:
        api_row = HANDLERS.get(row.api_key)
        if api_row is not None:
            low = max(row.min_version, api_row.announced_min)
            high = min(row.max_version, api_row.max_version)
            if low <= high:
                announced.append(ApiVersion(row.api_key, low, high))
        elif passes_unknown and row.api_key not in READ_RESPONSES:
            announced.append(row)
    return announced


def unsupported_version_response() -> ApiVersionsResponse:
    """Return the response, in version 0, to an ApiVersions of a version that is unknown here (KIP-511)."""
    api_row = HANDLERS[API_VERSIONS_KEY]
    row = ApiVersion(API_VERSIONS_KEY, api_row.min_version, api_row.max_version)
    return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [row])
