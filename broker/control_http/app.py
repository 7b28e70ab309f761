"""`control_app`: the ASGI application of the control API."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control_http.annotations import to_json
from oncelog.broker.control_http.calls import arguments_of, signature
from oncelog.broker.control_http.failures import INTERNAL, HttpError, error_json, status_of
from oncelog.broker.control_http.guard import Guard
from oncelog.broker.control_http.openapi import openapi
from oncelog.broker.control_http.routes import ROUTES, Route
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.seams.clock import real_time

BODY_MAX_BYTES = 64 * 1024 * 1024
"""A longer body is refused. Values of records stand in it, as text or base64."""
BODY_SECONDS = 30
"""How long a body may take to arrive."""
OPENAPI_PATH = "/openapi.json"

log = get_logger(__name__)


def _json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in UTF-8. A surrogate without its other half, which UTF-8 cannot have, is escaped."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, "application/json")


def control_app(
    call: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
    *,
    version: str,
    token: str | None = None,
    routes: Sequence[Route] = ROUTES,
    body_max_bytes: int = BODY_MAX_BYTES,
    body_seconds: float = BODY_SECONDS,
) -> ASGIApp:
    """Return the application. ``call`` performs an operation, given its name and arguments, in Trio.

    ``version`` is oncelog's. ``token``: see `Guard`.
    """

    def endpoint(route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                arguments = arguments_of(
                    route,
                    {name: unquote(text) for name, text in request.path_params.items()},
                    request.query_params.multi_items(),
                    await _read_json(request, body_max_bytes, body_seconds),
                )
                if route.arguments is not None:
                    arguments = route.arguments(**arguments)
                if signature(route).waits:
                    result = await _call_while_connected(call, route, arguments, request)
                else:
                    result = await call(route.operation, arguments)
                return _response(route, result)
            except Exception as error:
                return _error_response(error, route.operation)

        return respond

    async def describe(_: Request) -> Response:
        return _json_response(openapi(routes, version))

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _no_route(request, error)

    app = Starlette(
        routes=[
            *(StarletteRoute(one.path, endpoint(one), methods=[one.method]) for one in routes),
            StarletteRoute(OPENAPI_PATH, describe),
        ],
        exception_handlers={HTTPException: refuse},
    )
    app.router.redirect_slashes = False  # to another path than the one that was asked for
    return Guard(app, token)


async def _read_json(request: Request, max_bytes: int, seconds: float) -> Any:
    """Return the JSON of the body, None without a body. Raises HttpError, InvalidArgumentError."""
    body = bytearray()
    with real_time.move_on_after(seconds) as scope:
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                if len(body) + len(chunk) > max_bytes:
                    raise HttpError(413, "BodyTooLargeError", f"the body is larger than {max_bytes} bytes")
                body += chunk
    if scope.cancelled_caught:
        raise HttpError(400, "IncompleteBodyError", f"the body did not arrive within {seconds} seconds")
    if not body:
        return None
    try:
        found = json.loads(body)
        if b"\\ud" in body.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError("the body has half a surrogate pair, which no text may contain") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the body is not JSON: {error}") from None
    return found


async def _call_while_connected(
    call: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
    route: Route,
    arguments: Mapping[str, Any],
    request: Request,
) -> Any:
    """Call an operation that waits. Nobody waits any more when the client has gone: it is cancelled then."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        try:
            return await call(route.operation, arguments)
        finally:
            nursery.cancel_scope.cancel()


def _response(route: Route, result: Any) -> Response:
    if isinstance(result, bytes):
        return Response(result, media_type="application/octet-stream")
    if result is None:
        return Response(status_code=204)
    body = to_json(result)
    return _json_response(body if route.result_name is None else {route.result_name: body})


def _error_response(error: Exception, operation: str) -> Response:
    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        return _error_response(error.exceptions[0], operation)
    if status_of(error) == INTERNAL:
        log.exception("a control operation failed", operation=operation)
    return _json_response(error_json(error), status_of(error))


def _no_route(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    message = f"there is no {path}; GET {OPENAPI_PATH} describes what there is"
    kind = "NoRouteError"
    if error.status_code == 405:
        kind, message = (
            "MethodError",
            f"{request.method} {path}: expected {(error.headers or {}).get('Allow')}",
        )
    return _json_response({"error": kind, "message": message}, error.status_code, error.headers)
