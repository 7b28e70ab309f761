"""Requests to the control API's application, without a network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio
from starlette.types import ASGIApp

from oncelog.broker.control.controlled_broker import ControlledBroker
from oncelog.broker.control.options import checked_options
from oncelog.broker.control_http.app import control_app

LOCAL = {"host": "127.0.0.1:9093"}


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: ASGIApp,
    method: str,
    target: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] = LOCAL,
    is_gone: trio.Event | None = None,
    stalls: bool = False,
) -> Answer:
    """Send one request and return its response. ``body`` is sent as JSON, and bytes as they are.

    ``is_gone``: the client disconnects when it is set. ``stalls``: the end of the body never arrives.
    """
    path, _, query = target.partition("?")
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    parts = [{"type": "http.request", "body": data, "more_body": stalls}]
    sent: list[Any] = []

    async def receive() -> Any:
        if parts:
            return parts.pop()
        if is_gone is None:
            await trio.sleep_forever()
        else:
            await is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.1"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 9093),
    }
    await app(scope, receive, send)
    if not sent:
        return Answer(0, {}, b"")
    found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))


@asynccontextmanager
async def controlled(**options: Any) -> AsyncIterator[tuple[ControlledBroker, ASGIApp]]:
    """A broker in memory that runs, and its control API."""
    broker = ControlledBroker(checked_options(**options))
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        await broker.start()
        yield broker, control_app(broker.call, version="0")
        nursery.cancel_scope.cancel()


def answered(result: Any, target: str = "/groups/g", **more: Any) -> tuple[Any, list[Mapping[str, Any]]]:
    """The response to a request for a group, where the operation returns or raises ``result``; and its arguments."""
    calls: list[Mapping[str, Any]] = []

    async def call(operation: str, arguments: Mapping[str, Any]) -> Any:
        calls.append({"operation": operation, **arguments})
        if isinstance(result, BaseException):
            raise result
        return result

    async def main() -> Any:
        return await ask(control_app(call, version="0"), "GET", target, **more)

    return trio.run(main), calls
