"""A project for each test, which the plugin's tests run in."""

from __future__ import annotations

import pytest

import oncelog
from oncelog.pytest_plugin import factories, report


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """What a run in this process imports for the first time is forgotten after it, and its classes come twice."""
    with oncelog.Broker(topics=["orders"]) as kafka:
        kafka.topic("orders").records()
    assert factories.__name__ + report.__name__


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project without plugins that take long to load."""
    pytester.makeini("[pytest]\naddopts = -p no:asyncio -p no:trio -p no:anyio -p no:hypothesispytest\n")
    return pytester
