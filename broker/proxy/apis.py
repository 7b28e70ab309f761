"""The APIs as a proxy knows them. A `Plan` says whether it decodes, rewrites or refuses the requests and responses of
one version of one API. It forwards all others as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.proxy.relay.in_flight import ENDPOINTS, INTERCEPTED, RelayPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

FIND_COORDINATOR_KEY: Final = 10
CREATE_TOPICS_KEY: Final = 19
DELETE_TOPICS_KEY: Final = 20
DESCRIBE_CONFIGS_KEY: Final = 32
DESCRIBE_QUORUM_KEY: Final = 55
DESCRIBE_CLUSTER_KEY: Final = 60

READ_RESPONSES: Final = frozenset(
    key for key, row in HANDLERS.items() if row.proxy_reads or row.endpoints_min is not None
)
"""Keys of the APIs whose responses a proxy reads, to change them or to learn from them."""


class Plan(RelayPlan):
    """The treatment of one API version. It changes in place when something is installed or removed."""

    __slots__ = ("api", "decodes_request", "is_refused", "version")

    def __init__(self, key: int, version: int, api: Api | None) -> None:
        super().__init__(key, is_flexible=api is not None and api.flexible[version])
        self.version = version
        self.api = api
        """None if it cannot be decoded: the API, or this version of it, is unknown here."""
        self.decodes_request = False
        """Whether the request is decoded and shown to interceptors, or answered here."""
        self.is_refused = False
        """Whether an interceptor or the proxy has to see its requests, and cannot decode them."""
        if api is None:
            return
        row = api.row
        if row.proxy_reads:
            self.response = INTERCEPTED
        elif row.endpoints_min is not None and version >= row.endpoints_min:
            self.response = ENDPOINTS


class KnownApi(NamedTuple):
    """An API that can be decoded, and the range of versions that can."""

    api: Api
    min_version: int
    max_version: int


class KnownApis:
    """The APIs that can be decoded. The first use of an API imports its module."""

    def __init__(self) -> None:
        self._loaded: dict[int, KnownApi] = {}

    def get(self, key: int) -> KnownApi | None:
        """Return an API by its key, None if it is unknown."""
        found = self._loaded.get(key)
        if found is None and (row := HANDLERS.get(key)) is not None:
            api = Api(row, is_handled=False)
            found = self._loaded[key] = KnownApi(api, max(row.min_version, 0), row.max_version)
        return found

    @property
    def names(self) -> Mapping[int, str]:
        """The names of their modules, by key."""
        return {key: row.name for key, row in HANDLERS.items()}
