"""`Guard`: who may use the control API at all.

A web page that somebody has open beside a test must not drive the broker. It sends an Origin, which is refused. If its
name was made to lead to 127.0.0.1 (DNS rebinding), it sends that name as Host, which is refused, too.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from oncelog.broker.config.options import is_loopback
from oncelog.broker.control_http.failures import HttpError, error_json

_FROM_OTHER_SITES = ("cross-site", "same-site")


class Guard:
    """Passes requests on to ``app``.

    Without a ``token``, the Host must be this machine. With one, each request must bring it (``Authorization:
    Bearer``), and the Host may be any.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            try:
                self._check({name.lower(): value.decode("latin-1") for name, value in scope["headers"]})
            except HttpError as error:
                await _refusal(error)(scope, receive, send)
            else:
                # Names in a path may contain an encoded slash: each part is decoded only after the path was split.
                await self._app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)

    def _check(self, headers: Mapping[bytes, str]) -> None:
        if b"origin" in headers or headers.get(b"sec-fetch-site") in _FROM_OTHER_SITES:
            raise HttpError(403, "ForbiddenOriginError", "web pages may not use the control API")
        if self._token is not None:
            given = headers.get(b"authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, b"Bearer " + self._token.encode()):
                message = "the control API was started with a token: send it as Authorization: Bearer TOKEN"
                raise HttpError(401, "UnauthorizedError", message)
        elif not is_loopback(_without_port(headers.get(b"host", ""))):
            message = f"Host {headers.get(b'host', '')!r} is not this machine: use 127.0.0.1, or start it with a token"
            raise HttpError(403, "ForbiddenHostError", message)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _refusal(error: HttpError) -> JSONResponse:
    headers: dict[str, Any] = {"connection": "close"}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error_json(error), error.status, headers)
