"""`ROUTES`: the method and path of each operation. A further operation needs one line here, and nothing else.

What a route takes and returns follows from the operation's signature. An argument in the path is named in braces. The
others are query parameters of a GET, and fields of a POST's, PUT's or DELETE's JSON body.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelog.broker.control.operations import MODULES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@dataclass(frozen=True)
class Route:
    """One operation's method and path."""

    method: str
    path: str
    operation: str
    whole_body: str | None = None
    """The argument that the whole JSON body is; None if the body is an object of arguments."""
    result_name: str | None = None
    """The result is wrapped in an object with this one field, such as ``{"id": 1}``."""

    @property
    def path_arguments(self) -> tuple[str, ...]:
        """The arguments in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def takes_query(self) -> bool:
        """Whether the arguments that are not in the path are query parameters."""
        return self.method == "GET"

    def function(self) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return the operation. Its module is imported with the first call."""
        function: Callable[..., Coroutine[Any, Any, Any]] = getattr(
            importlib.import_module(MODULES[self.operation]), self.operation
        )
        return function


ROUTES = (
    # The broker
    Route("GET", "/broker", "info"),
    Route("POST", "/broker/start", "start"),
    Route("POST", "/broker/stop", "stop"),
    Route("POST", "/broker/kill", "kill"),
    Route("POST", "/broker/lose_power", "lose_power"),
    Route("POST", "/broker/reset", "reset", result_name="connected_clients"),
    Route("GET", "/log_lines", "log_lines"),
    # What is in it
    Route("GET", "/topics", "topics"),
    Route("GET", "/topics/{name}", "topic"),
    Route("GET", "/topics/{topic}/records", "records"),
    Route("GET", "/groups", "groups"),
    Route("GET", "/groups/{group_id}", "group"),
    Route("GET", "/transactions", "transactions"),
    Route("GET", "/transactions/{transactional_id}", "transaction"),
    Route("GET", "/producers", "producers"),
)
