"""The APIs as a proxy knows them: what it can decode, what it has to rewrite, and what becomes of each request.

A `Plan` says, for one version of one API, what is done with its requests and responses. What nobody has to see passes
as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.header import API_VERSIONS_KEY, FETCH_KEY, PRODUCE_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARE_FETCH_KEY: Final = 78
SHARE_ACKNOWLEDGE_KEY: Final = 79

PASS, ENDPOINTS, READ = range(3)
"""Kinds of responses: one passes as it is, one may end with node endpoints, one has to be decoded."""

READ_RESPONSES: Final = frozenset(
    {
        3,  # Metadata
        10,  # FindCoordinator
        19,  # CreateTopics
        20,  # DeleteTopics
        API_VERSIONS_KEY,
        32,  # DescribeConfigs
        55,  # DescribeQuorum
        60,  # DescribeCluster
        SHARE_FETCH_KEY,
        SHARE_ACKNOWLEDGE_KEY,
    }
)
"""Keys of APIs with addresses in their responses, with versions (ApiVersions), or with news about topics."""
ENDPOINTS_MIN: Final = {PRODUCE_KEY: 10, FETCH_KEY: 16}
"""The first versions whose responses may end with node endpoints, as a tagged field (KIP-951)."""
REWRITTEN: Final = READ_RESPONSES | ENDPOINTS_MIN.keys()


class Plan:
    """The treatment of one API version. It changes in place when something is installed or removed."""

    __slots__ = (
        "api",
        "is_flexible",
        "is_refused",
        "key",
        "needs_look",
        "reads_request",
        "response",
        "version",
    )

    def __init__(self, key: int, version: int, api: Api | None) -> None:
        self.key = key
        self.version = version
        self.api = api
        """None if it cannot be decoded: the API, or this version of it, is unknown here."""
        self.response = PASS
        """`PASS`, `ENDPOINTS` or `READ`."""
        self.reads_request = False
        """Whether the request is decoded and shown to interceptors, or answered here."""
        self.is_refused = False
        """Whether somebody has to see it, and it cannot be decoded."""
        self.needs_look = False
        """Whether its requests do not pass."""
        self.is_flexible = api is not None and api.flexible[version]
        if api is None:
            return
        if key in ENDPOINTS_MIN:
            self.response = ENDPOINTS if version >= ENDPOINTS_MIN[key] else PASS
        elif key in READ_RESPONSES:
            self.response = READ


class KnownApi(NamedTuple):
    """An API that can be decoded, and the versions in which it can."""

    api: Api
    min_version: int
    max_version: int


class KnownApis:
    """The APIs that can be decoded; their modules are loaded at first use."""

    def __init__(self) -> None:
        self._loaded: dict[int, KnownApi] = {}

    def get(self, key: int) -> KnownApi | None:
        """Return an API by its key, None if it is unknown."""
        found = self._loaded.get(key)
        if found is None and (handler := HANDLERS.get(key)) is not None:
            api = Api(handler, is_handled=False)
            found = self._loaded[key] = KnownApi(api, max(handler.min_version, 0), handler.max_version)
        return found

    @property
    def names(self) -> Mapping[int, str]:
        """The names of their modules, by key."""
        return {key: handler.name for key, handler in HANDLERS.items()}
