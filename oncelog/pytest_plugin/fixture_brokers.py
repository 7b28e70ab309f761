"""The brokers and proxies that fixtures make: their rules, and the tests whose reports show them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

from oncelog.pytest_plugin import unfired_rules

if TYPE_CHECKING:
    from oncelog import Broker, Proxy


@dataclass
class Made:
    """A broker, a cluster or a proxy, and its fixture. ``behind``: the fixture before whose broker a proxy stands."""

    broker: Broker | Proxy
    name: str
    scope: str
    behind: str | None
    last_rule: int = 0
    """The id of the last rule that no test has made; it is kept up with `--kafka-unfired-rules=error` only."""

    @property
    def is_observed(self) -> bool:
        """Whether requests to it are known, and it has rules: not a Kafka cluster without a proxy."""
        return getattr(self.broker, "is_observed", True)

    def takes(self, marker: str) -> bool:
        """Whether the settings of ``@pytest.mark.<marker>`` are for such a fixture, whatever its scope."""
        from oncelog import Proxy

        return isinstance(self.broker, Proxy) == (marker == "kafka_proxy")


_made: WeakKeyDictionary[object, dict[str, Made]] = WeakKeyDictionary()
"""What the fixtures of a node made, by the fixture's name. (pytest's stash is not in every pytest that may import
this.)
"""


def all_made() -> list[Made]:
    """Return what the fixtures of all nodes made."""
    return [one for made in _made.values() for one in made.values()]


def made_above(item: pytest.Item) -> list[tuple[object, Made]]:
    """Return what the fixtures of a test's node and of those above it made, wider scopes first."""
    return [(node, one) for node in item.listchain() for one in _made.get(node, {}).values()]


def made_for(item: pytest.Item) -> list[tuple[object, Made]]:
    """Return what the fixtures of a test made, and the node that each fixture belongs to, wider scopes first."""
    made = made_above(item)
    used = {*getattr(item, "fixturenames", ())}
    used |= {one.behind for node, one in made if node is item or one.name in used}
    return [(node, one) for node, one in made if node is item or one.name in used]


def check_markers(item: pytest.Item) -> None:
    """Fail a test with a marker that has no effect on any broker, or proxy, of the test."""
    made = made_for(item)
    for marker in ("kafka", "kafka_proxy"):
        fit = [(node, one) for node, one in made if one.takes(marker)]
        for marked, mark in item.iter_markers_with_node(marker):
            has_effect = any(marked in _marked_nodes(node, one) for node, one in fit)
            if mark.kwargs and not has_effect and (fit or (made and marker == "kafka")):
                why = "; ".join(_without_effect(marker, one) for _, one in fit or made)
                pytest.fail(f"@pytest.mark.{marker} has no effect: {why}", pytrace=False)


def _marked_nodes(node: Any, made: Made) -> list[object]:
    """Return the nodes whose markers a fixture reads."""
    return [] if made.scope == "session" else list(node.listchain())


def _without_effect(marker: str, made: Made) -> str:
    if not made.takes(marker):
        return (
            f"{made.name} is a proxy, and starts no broker: create topics with {made.name}.create_topics(), and give "
            "settings of the proxy to @pytest.mark.kafka_proxy"
        )
    if made.scope in ("session", "package"):
        return (
            f"{made.name} is shared by the {made.scope}: give the settings to its factory, or use a fixture with scope "
            f"function, such as {marker}"
        )
    return (
        f"{made.name} has scope {made.scope}, and reads no markers of what is inside: mark the {made.scope}, or use a "
        "fixture with scope function"
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
def in_use(
    request: pytest.FixtureRequest,
    broker: Broker | Proxy,
    faults: Any,
    *,
    are_of_the_test: bool,
    behind: str | None = None,
) -> Iterator[None]:
    """Add the rules in ``faults``, and know meanwhile that the fixture has this broker.

    ``are_of_the_test``: one test has these rules, not each. ``behind``: see `Made`. Raises InvalidArgumentError.
    """
    made = _made.setdefault(request.node, {})
    name = request.fixturename or "kafka"
    one = made[name] = Made(broker, name, request.scope, behind)
    try:
        if are_of_the_test:
            unfired_rules.note(request.config, one)
        add_faults(broker, faults)
        if not are_of_the_test:
            unfired_rules.note(request.config, one)
        yield
    finally:
        del made[name]


def failure(request: pytest.FixtureRequest, message: str) -> BaseException:
    """Return the exception that fails a test because of its fixture, with a message of one line."""
    return pytest.fail.Exception(f"{request.fixturename}: {message}", pytrace=False)
