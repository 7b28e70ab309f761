"""Whatever a client sends as arguments: the response is never that of a defect, and the broker goes on."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

import pytest
import trio
from starlette.types import ASGIApp

from oncelog.broker.control_http.calls import signature
from oncelog.broker.control_http.routes import ROUTES, Route
from tests.control_http.asking import ask, controlled

REQUESTS = 1500
PATIENCE_S = 60
LEFT_OUT = {"stop", "kill", "lose_power", "reset", "snapshot"}
"""They take no arguments, end the broker, or write a file."""

ODD: tuple[Any, ...] = (None, [], {}, 5, "none")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 5, 2**31, 2**63, 2**64, -(2**63), 2**70, 1.5, -0.5, 1e308),
    *("", "orders", "a", "g", "app", "-1", "é", "\0", "x" * 300, "../..", "2026-01-01T00:00:00Z"),
    *("EndTxn", "Produce", "NONE", "keep", "expire", "read_committed", "Stable", "Empty", "rules.toml"),
    *([], {}, ["orders"], [1], [None], [[]], {"a": 1}, {"0": 5}, {"": 1}, {"..": 1}, {"x": {"config": [1]}}),
    *({"orders": {"0": 5}}, {"orders": {"-1": 5}}, {"orders": {"0": -5}}, {"orders": {"99999999999": 1}}),
    *({"orders": -1}, {"orders": 2**40}, {"orders": {"partitions": "x"}}),
    *({"new": {"partitions": 1, "config": {"retention.ms": value}}} for value in ODD),
    *({"base64": "/w=="}, {"base64": 5}, {"value": "v"}, {"value": None, "key": "k", "headers": {"": None}}),
    *({"value": "v", "partition": 7}, {"value": "v", "timestamp": -5}, {"value": "v", "timestamp": 2**63}),
    *({"on": "EndTxn"}, {"on": 5}, {"on": {}, "close": True}, {"on": ["Produce", 5]}, {"crash_at": "x"}),
    *({"on": "Produce", "nth": "x"}, {"on": "Produce", "hold": 1}, {"on": "*", "error": "NONE"}),
    *({"on": "Fetch", "delay_ms": value} for value in (-1, 2**70, "x")),
    *({"on": "Fetch", "close": True, "topic": value} for value in ODD),
    {"on": "Fetch", "with_probability": 7, "close": True},
)


async def seed(app: ASGIApp) -> None:
    """Make what requests may be about."""
    await ask(app, "POST", "/topics", {"orders": 2})
    await ask(app, "POST", "/topics/orders/records", ["a", "b"])
    await ask(app, "POST", "/groups/g/offsets", {"orders": {"0": 0}})
    await ask(app, "DELETE", "/faults")
    await ask(app, "POST", "/faults", {"on": "EndTxn", "nth": 2, "drop_response": "close"})


def request(route: Route, rng: random.Random) -> tuple[str, Any]:
    """A target and a body with some of the route's arguments."""

    def text() -> str:
        value = rng.choice(VALUES)
        return quote(value if isinstance(value, str) else json.dumps(value), safe="") or "x"

    target = route.path
    for name in route.path_arguments:
        target = target.replace(f"{{{name}}}", text())
    others = [name for name in signature(route).parameters if name not in route.path_arguments]
    if route.takes_query:
        return f"{target}?{'&'.join(f'{name}={text()}' for name in others if rng.random() < 0.4)}", None
    if route.whole_body is not None:
        return target, rng.choice(VALUES)
    body = {name: rng.choice(VALUES) for name in others if rng.random() < 0.6}
    if "timeout" in others:
        body["timeout"] = rng.choice([0.001, 0.001, 0, -1, "x", None])
    return target, body


@pytest.mark.parametrize("number", range(2))
def test_any_arguments(number: int) -> None:
    rng = random.Random(number)
    routes = [route for route in ROUTES if route.operation not in LEFT_OUT]

    async def main() -> None:
        async with controlled() as (broker, app):
            for count in range(REQUESTS):
                if count % 20 == 0:
                    await seed(app)
                route = rng.choice(routes)
                target, body = request(route, rng)
                with trio.fail_after(PATIENCE_S):
                    answer = await ask(app, route.method, target, json.dumps(body).encode())
                shown = f"{route.method} {target} {body!r}: {answer.body[:300]!r}"
                assert answer.status in (200, 204, 400, 404, 409, 422, 501, 504), shown
                assert broker.is_running, shown

    trio.run(main)
