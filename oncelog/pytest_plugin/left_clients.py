"""``--kafka-left-clients``: a test is told of the clients that it leaves connected to a broker of later tests.

A forgotten consumer would take a part of their records.

A client is known by its client id, and by the groups and transactional ids that it has joined. One that was there
before the test is not the test's: an earlier test has left it, or a fixture of a wider scope holds it. What comes in a
test for which such a fixture was set up may be the fixture's.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from oncelog.pytest_plugin import fixture_brokers
from oncelog.pytest_plugin.settings import ERROR, IGNORE, common_settings

if TYPE_CHECKING:
    import pytest

    from oncelog import Broker, Proxy
    from oncelog.pytest_plugin.fixture_brokers import Made

CLOSING_S = 0.1
"""For how long, in seconds, clients that a test has closed are waited for, before garbage is looked for."""
ENDING_S = 1.0
"""How long their end may take after that, in seconds, before the test counts as having left them."""

REMEDY = "close it in the test, or connect it in the fixture that keeps it"


@dataclass
class _Seen:
    """The known clients of a broker."""

    origins: dict[str, dict[str, str]] = field(default_factory=dict)
    """Where each client comes from, in words: by its client id and by what it has joined, "" for the connection."""
    holders: set[str] = field(default_factory=set)
    """The names of fixtures of a wider scope that know the broker, and may have clients of it."""
    has_new_holder: bool = False
    """Whether one of them was set up for this test."""


_seen: WeakKeyDictionary[Broker | Proxy, _Seen] = WeakKeyDictionary()


def note_fixture(name: str, scope: str, arguments: Iterable[str]) -> None:
    """A fixture with these arguments is about to be set up."""
    if scope != "function":
        for made in fixture_brokers.all_made():
            seen = _seen.setdefault(made.broker, _Seen())
            if not seen.holders.union((made.name,)).isdisjoint(arguments):
                seen.holders.add(name)
                seen.has_new_holder = True


def check(item: pytest.Item) -> None:
    """Warn of each client that a test which passed has left, or add an error to its reports. Its fixtures have ended,
    and the clients that only they had.
    """
    brokers = {made.broker: made for _, made in fixture_brokers.made_above(item) if made.is_observed}
    if not brokers:
        return
    from oncelog import LeftClientWarning

    setting = common_settings(item.config).left_clients
    # pytest keeps the variables of a failed test in it, until the next one is called.
    is_told = setting != IGNORE and not hasattr(sys, "last_value")
    path, line, _ = item.location
    errors = []
    for text in [text for made in brokers.values() for text in _left(item, made, is_told=is_told)]:
        try:
            if setting == ERROR:
                raise LeftClientWarning(text)
            warnings.warn_explicit(text, LeftClientWarning, str(item.config.rootpath / path), (line or 0) + 1)
        except LeftClientWarning as error:
            errors.append(str(error))
    if errors:
        from _pytest.reports import TestReport  # pytest exports it from 7.0 on

        keywords: Any = dict.fromkeys(item.keywords, 1)
        report = TestReport(item.nodeid, item.location, keywords, "failed", "\n".join(errors), "teardown")
        item.ihook.pytest_runtest_logreport(report=report)


def _left(item: pytest.Item, made: Made, *, is_told: bool) -> list[str]:
    """Know the clients of a broker from now on. Return a text about each that the test has left; none unless
    ``is_told``, or if a fixture may have it.
    """
    seen = _seen.setdefault(made.broker, _Seen())
    is_of_test, seen.has_new_holder = not seen.has_new_holder, False
    is_told = is_told and is_of_test
    found = _connected(made.broker, seen, CLOSING_S if is_told else 0)
    if found and is_told:
        gc.collect()  # what pytest.raises() has caught is a cycle that keeps the test's variables
        found = _connected(made.broker, seen, ENDING_S)
    origin = f"{'left by' if is_of_test else 'there since'} {item.nodeid}"
    for client_id, joined in found.items():
        origins = seen.origins.setdefault(client_id, {})
        for role in ("", *joined):
            origins.setdefault(role, origin)
    return [
        f"the test has left {_text(*one)}, connected to {made.name}, which later tests use: {REMEDY}"
        for one in found.items()
        if is_told
    ]


def described(broker: Broker | Proxy) -> tuple[list[str], list[str]]:
    """Return lines about the clients that are connected and were there before the test, and about all others."""
    seen = _seen.get(broker, _Seen())
    new = _connected(broker, seen, 0)
    earlier = [
        f"{_text(client_id, joined)}: {', '.join(dict.fromkeys(seen.origins[client_id].values()))}"
        for client_id, joined in _connected(broker, _Seen(), 0).items()
        if client_id in seen.origins
    ]
    return earlier, [_text(*one) for one in new.items()]


def _connected(broker: Broker | Proxy, seen: _Seen, timeout: float) -> dict[str, list[str]]:
    """Return the clients that are not known yet, and what each has joined, as ``connected_clients`` does."""
    from oncelog import OncelogError

    known = {client_id: [*origins] for client_id, origins in seen.origins.items()}
    found: dict[str, Any] = {}
    with suppress(OncelogError):  # the test has closed it
        found = broker._call("connected_clients", known=known, timeout=timeout)
    return found


def _text(client_id: str, joined: Iterable[str]) -> str:
    return f"client {client_id}" + "".join(f", {role}" for role in joined)
