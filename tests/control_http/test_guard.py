"""The control API refuses requests without a token, from other hosts and from web pages."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from oncelog.broker.control_http.app import control_app
from tests.control_http.asking import LOCAL, answered, ask


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("127.0.0.1:9093", True),
        ("127.0.0.1", True),
        ("localhost:9093", True),
        ("LOCALHOST", True),
        ("[::1]:9093", True),
        ("127.8.8.8:1", True),
        ("evil.example:9093", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:80", False),
        ("192.168.0.1:9093", False),
        ("0.0.0.0:9093", False),
        ("", False),
    ],
)
def test_without_a_token_the_host_must_be_this_machine(host: str, is_allowed: bool) -> None:
    answer, calls = answered(None, headers={"host": host})
    assert answer.status == (204 if is_allowed else 403)
    assert bool(calls) is is_allowed


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9093"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_a_web_page_is_refused(headers: Mapping[str, str]) -> None:
    answer, calls = answered(None, headers={**LOCAL, **headers})
    assert (answer.status, answer.json["error"]) == (403, "ForbiddenOriginError")
    assert not calls


def test_a_token() -> None:
    async def call(operation: str, arguments: Mapping[str, Any]) -> Any:
        return []

    async def main() -> None:
        app = control_app(call, version="0", token="s3cret")
        for given in ({}, {"authorization": "Bearer other"}, {"authorization": "s3cret"}):
            answer = await ask(app, "GET", "/topics", headers={**LOCAL, **given})
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        allowed = {"host": "oncelog.test:9093", "authorization": "Bearer s3cret"}
        assert (await ask(app, "GET", "/topics", headers=allowed)).status == 200

    trio.run(main)


def test_websockets_are_closed() -> None:
    async def call(operation: str, arguments: Mapping[str, Any]) -> Any:
        raise AssertionError

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    app = control_app(call, version="0")
    trio.run(app, {"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close"}]
