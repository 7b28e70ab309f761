"""The steps of a program, from its undisturbed runs, and the disturbances at each: the plan of the trials.

A step is a request of one instance: its API, the topic it writes to, and which of its kind it is; or a write to a log,
at which the broker may die. Of each kind the first, the second, a middle one and the last are tried. The trials go
breadth first: one of each kind before the second of any. Two disturbances that leave the same state (the same records
in all logs, the same files of the program, the program dead) are one class, and tried once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.broker.prove.disturbances import (
    FETCHES,
    FINAL,
    IN_TRANSACTION,
    KINDS,
    OF_NODES,
    RETRIABLE,
    WITH_RECORDS,
    WRITES,
    Disturbance,
    Then,
)
from oncelog.broker.prove.trials.program import listener_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from oncelog.broker.prove.trials.history import Event

BY_TOPIC: Final = frozenset(("Produce",))
"""The APIs whose steps are told apart by topic."""


class _Kind(NamedTuple):
    """Requests of one kind."""

    instance: int
    api: str
    topic: str | None
    group: str | None

    def rule(self, nth: int) -> dict[str, Any]:
        """Return the filters of a rule for the n-th request of the kind."""
        rule: dict[str, Any] = {"on": self.api, "listener": listener_of(self.instance)}
        for word, value in (("topic", self.topic), ("group", self.group)):
            if value is not None:
                rule[word] = value
        return {**rule, "nth": nth}


class _Planned(NamedTuple):
    """A disturbance, and its place in the order."""

    disturbance: Disturbance
    depth: int
    """0 for one of each kind of step, 1 for the next of each, ..."""
    priority: int


def picks(count: int) -> list[int]:
    """Return which of ``count`` occurrences are tried, from 1 on, the most telling first: a middle one, the first, the
    last, the second.
    """
    wanted = ((count + 1) // 2, 1, count, 2)
    return list(dict.fromkeys(one for one in wanted if 1 <= one <= count))


def planned(
    events: Sequence[Event], counts: Iterable[tuple[dict[str, Any], int]], *, is_checked: bool
) -> list[Disturbance]:
    """Return the disturbances of all classes of steps of an undisturbed run, in the order in which they are tried.

    ``counts``: how often each rule of `counter_rules` matched. ``is_checked``: whether the program changes something
    that nobody sees; then no two steps leave the same state.
    """
    order: list[_Planned] = []
    seen: set[Hashable] = set()
    for kind, found in _by_kind(events).items():
        for depth, nth in enumerate(picks(len(found))):
            for disturbance in _at_request(kind, nth):
                state = _state(disturbance, found[nth - 1])
                if state is not None and not is_checked:
                    if state in seen:
                        continue
                    seen.add(state)
                order.append(_Planned(disturbance, depth, _PRIORITIES[disturbance.kind]))
    order += _at_fetches(events, is_checked=is_checked)
    for rule, count in counts:
        for depth, nth in enumerate(picks(count)):
            disturbance = Disturbance("broker dies", {**rule, "nth": nth})
            order.append(_Planned(disturbance, depth, _PRIORITIES["broker dies"]))
    return [one.disturbance for one in sorted(order, key=lambda one: (one.depth, one.priority))]


_PRIORITIES: Final = {name: number for number, name in enumerate(KINDS)}


def _by_kind(events: Sequence[Event]) -> dict[_Kind, list[Event]]:
    """Return the requests that are steps, by kind."""
    groups = {(one.instance, one.api): set[str]() for one in events}
    for one in events:
        groups[one.instance, one.api].update(one.groups)
    found: dict[_Kind, list[Event]] = {}
    for event in events:
        if event.api not in RETRIABLE:
            continue
        topics = event.topics if event.api in BY_TOPIC else (None,)
        several = len(groups[event.instance, event.api]) > 1
        for topic in topics:
            for group in event.groups if several else (None,):
                found.setdefault(_Kind(event.instance, event.api, topic, group), []).append(event)
    return found


def _at_request(kind: _Kind, nth: int) -> Iterator[Disturbance]:
    """Yield the disturbances at the n-th request of a kind."""
    for name, row in KINDS.items():
        word, value = row.action
        if word == "error":
            value = (RETRIABLE if name == "refuse" else FINAL).get(kind.api)
        if value is None or (row.then is Then.TAKE_OVER and kind.api not in WRITES):
            continue
        if row.then in OF_NODES and kind.api not in WRITES:
            continue
        if row.then is Then.LOSE_LEADER and kind.api != "Produce":  # the broker writes all else with acks=all
            continue
        if row.then is Then.EXPIRE_TRANSACTION and kind.api not in IN_TRANSACTION:
            continue
        yield Disturbance(name, {**kind.rule(nth), word: value})


def _at_fetches(events: Sequence[Event], *, is_checked: bool) -> Iterator[_Planned]:
    """Yield the disturbances at Fetches that bring records. A program whose results are elsewhere (``is_checked``) may
    send nothing else: it is tried as a zombie there, too.
    """
    for instance, api in dict.fromkeys((one.instance, one.api) for one in events if one.api in FETCHES):
        fetches = [one for one in events if (one.instance, one.api) == (instance, api)]
        full = [number for number, one in enumerate(fetches, 1) if one.brought_records]
        for depth, pick in enumerate(picks(len(full))):
            for name, row in KINDS.items():
                if row.then in WITH_RECORDS or (is_checked and name == "zombie before"):
                    word, value = row.action
                    rule = {**_Kind(instance, api, None, None).rule(full[pick - 1]), word: value}
                    yield _Planned(Disturbance(name, rule), depth, _PRIORITIES[name])


def _state(disturbance: Disturbance, event: Event) -> Hashable | None:
    """Return what is left by the disturbance at a request, if that is all there is to it."""
    row = KINDS[disturbance.kind]
    if not row.is_state:
        return None
    is_after = row.action[0] == "drop_response"
    return event.instance, row.then, event.writes_after if is_after else event.writes, event.folder


def counter_rules(topics: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rules of the writes at which the broker may die, without a count. ``topics``: those that the program
    writes to.
    """
    found: list[dict[str, Any]] = []
    for when in ("before", "after"):
        found += [{"crash_at": f"{when} append", "topic": topic} for topic in topics]
        for event in ("offsets", "partitions", "decision", "marker", "completion", "share state"):
            found.append({"crash_at": f"{when} {event}"})
    return found
