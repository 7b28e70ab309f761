"""The brokers and proxies that fixtures make: their rules, and the tests whose reports show them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

if TYPE_CHECKING:
    from oncelog import Broker, Proxy

_brokers: WeakKeyDictionary[object, dict[str, Broker | Proxy]] = WeakKeyDictionary()
"""The brokers, and proxies, that the fixtures of a node made, by the fixture's name. (pytest's stash is not in every
pytest that may import this.)
"""


def brokers_of(item: pytest.Item) -> dict[str, Broker | Proxy]:
    """Return the brokers and proxies of a test, by the fixture's name, those of wider scopes first."""
    return {
        name: broker
        for node in item.listchain()
        for name, broker in _brokers.get(node, {}).items()
        if node is item or name in getattr(item, "fixturenames", ())
    }


def check_markers(item: pytest.Item) -> None:
    """Fail a test with a marker that has no effect, because the session owns all brokers of the test."""
    marker = item.get_closest_marker("kafka")
    if marker is not None and marker.kwargs:
        shared = brokers_of(item).keys() & _brokers.get(item.session, {}).keys()
        if shared and shared == brokers_of(item).keys():
            pytest.fail(
                f"@pytest.mark.kafka is for a broker of the test's own, and {', '.join(sorted(shared))} is shared: "
                "use the fixture kafka, or give the settings to factories.kafka_proc()",
                pytrace=False,
            )


def add_faults(broker: Broker | Proxy, faults: Any) -> None:
    """Add rules, or those of a file. Raises InvalidArgumentError."""
    from oncelog import InvalidArgumentError

    if isinstance(faults, str | os.PathLike):
        try:
            broker.faults.load(faults)
        except OSError as error:
            raise InvalidArgumentError(f"faults: cannot read {faults}: {error.strerror or error}") from None
    else:
        for rule in [faults] if isinstance(faults, Mapping) else faults:
            broker.faults.add(rule)


@contextmanager
def shown_in_reports(request: pytest.FixtureRequest, broker: Broker | Proxy) -> Iterator[None]:
    """Show the broker in the report of a test that fails meanwhile."""
    brokers = _brokers.setdefault(request.node, {})
    name = request.fixturename or "kafka"
    brokers[name] = broker
    try:
        yield
    finally:
        del brokers[name]


def failure(request: pytest.FixtureRequest, message: str) -> BaseException:
    """Return the exception that fails a test because of its fixture, with a message of one line."""
    return pytest.fail.Exception(f"{request.fixturename}: {message}", pytrace=False)
