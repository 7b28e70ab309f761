"""Errors over HTTP: a status code, and a JSON object with name and message."""

from __future__ import annotations

import re
from typing import Any, Final

from oncelog.broker.control import errors
from oncelog.broker.control_http.routes import ROUTES
from oncelog.wire.errors import KafkaError

BAD_REQUEST: Final = 400
INTERNAL: Final = 500

STATUS_OF_ERROR: dict[type[Exception], int] = {
    errors.InvalidArgumentError: BAD_REQUEST,
    errors.NotFoundError: 404,
    errors.NotRunningError: 409,
    KafkaError: 422,
    errors.UnsupportedError: 501,
    errors.BrokerFailedError: 503,
    # Not 408: some clients repeat a request that was answered so.
    errors.WaitTimeoutError: 504,
}


class HttpError(Exception):
    """A request that reaches no operation. ``kind`` is its name for programs."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


def status_of(error: BaseException) -> int:
    """Return the status code of an error; that of a defect if it is none of ours."""
    if isinstance(error, HttpError):
        return error.status
    found = (STATUS_OF_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_OF_ERROR)
    return next(found, BAD_REQUEST if isinstance(error, errors.OncelogError) else INTERNAL)


_CALL = re.compile(r"\b([a-z_]+)\(\)")
_ROUTE_OF_CALL = {route.operation: f"{route.method} {route.path}" for route in ROUTES}


def _with_routes(message: str) -> str:
    """Return a message with a route in place of each operation that it tells Python programs to call."""
    return _CALL.sub(lambda call: _ROUTE_OF_CALL.get(call[1], call[0]), message)


def error_json(error: BaseException) -> dict[str, Any]:
    """Return the JSON of an error."""
    kind = error.kind if isinstance(error, HttpError) else type(error).__name__
    if status_of(error) == INTERNAL:
        return {"error": "InternalError", "message": f"a defect of oncelog, see its log: {error!r}"}
    found: dict[str, Any] = {"error": kind, "message": _with_routes(str(error))}
    if isinstance(error, KafkaError):
        found["code"], found["name"] = int(error.code), error.code.name
    return found
