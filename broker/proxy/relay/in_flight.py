"""In-flight requests: those whose response has not left, in the order of the requests."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

FORWARDED, ENDPOINTS, INTERCEPTED = range(3)
"""What a relay does with responses: `FORWARDED` as they are, `ENDPOINTS` so unless they end with node endpoints,
`INTERCEPTED`: they are not forwarded, but decoded."""
IN_FLIGHT_MAX: Final = 1024
"""In-flight requests of a client, beyond which no more of its requests are read."""


class RelayPlan:
    """What a relay does with the requests and responses of one version of one API."""

    __slots__ = ("intercepts_requests", "is_flexible", "key", "response")

    def __init__(self, key: int, *, is_flexible: bool) -> None:
        self.key = key
        self.is_flexible = is_flexible
        """Whether the version has compact fields and tagged fields."""
        self.intercepts_requests = False
        """Whether its requests are not forwarded as bytes, but given to `RequestHandler`."""
        self.response = FORWARDED
        """`FORWARDED`, `ENDPOINTS` or `INTERCEPTED`."""


class InFlight(NamedTuple):
    """One request."""

    correlation_id: int
    plan: RelayPlan | None
    """None if the proxy responds itself."""
    receiver: object | None = None
    """The receiver of the response; None if the plan alone says what happens to it. If the proxy responds itself: the
    response, which waits for its turn (`OwnResponse`)."""


InFlightRequests = deque[InFlight]
"""Those of one client."""
