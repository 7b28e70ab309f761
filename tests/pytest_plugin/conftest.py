"""A project for each test, which the plugin's tests run in."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import oncelog
from oncelog import broker, coordinator, pytest_plugin, wire


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """All modules of oncelog but those for Spark, and what other packages load with the first broker.

    What a run in this process imports for the first time is forgotten after it: its classes would come twice, for the
    tests after it too.
    """
    for package in (wire, coordinator, broker, pytest_plugin):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    with oncelog.Broker(topics=["orders"]) as kafka:
        kafka.topic("orders").records()


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project without plugins that take long to load."""
    pytester.makeini("[pytest]\naddopts = -p no:asyncio -p no:trio -p no:anyio -p no:hypothesispytest\n")
    return pytester
