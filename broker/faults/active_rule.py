"""`ActiveRule`: a rule in force, with its counts, and the requests that wait for its release."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import trio

from oncelog.broker.faults.rule import ROW_FILTERS, Rule
from oncelog.broker.faults.state import RuleState, rule_name
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.refusal.rows import RequestRows, Row

VALUES_SEEN_MAX = 10
"""How many values `RuleState.seen` keeps for each filter, up to the first request that passes them."""
TIMES_LOGGED, TIMES_PER_LINE = 10, 100
"""The first `TIMES_LOGGED` times that a rule fires are logged, later every `TIMES_PER_LINE`-th."""

log = get_logger(__name__)


class ActiveRule:
    """A rule in force. ``changed`` is called when it fires, when a request is no longer held, and at its release."""

    def __init__(self, id_: int, rule: Rule, seed: int | None, changed: Callable[[], None]) -> None:
        self.id = id_
        self.rule = rule
        self.seed = seed
        self.matched = self.fired = self.held = 0
        self.node_id: int | None = None
        """The node of the request for which it was due last, of several."""
        self.is_removed = False
        """Whether it was removed: from then on it does nothing, not even to a request that it has counted."""
        self.notes: dict[str, None] = {}
        self._came = 0
        self._seen: dict[str, dict[str | int, None]] = {}
        self._released = trio.Event()
        self._random = random.Random(seed)
        self._changed = changed

    def __str__(self) -> str:
        return rule_name(self.id, self.rule.text)

    @property
    def state(self) -> RuleState:
        rule = self.rule
        return RuleState(
            self.id,
            dict(rule.data),
            rule.text,
            self.matched,
            self.fired,
            self.held,
            self._released.is_set(),
            self.seed,
            tuple(self.notes),
            self._came,
            {name: tuple(values) for name, values in self._seen.items() if values},
        )

    def matches_header(self, facts: Mapping[str, Any]) -> bool:
        """Whether all filters match; a filter for a fact that ``facts`` does not have matches."""
        return all(facts[name] in values for name, values in self.rule.filters.items() if name in facts)

    def matches_row(self, row: Row) -> bool:
        """Whether the rule's filters name a row. They do if the row stands for all."""
        for name in ROW_FILTERS:
            values = self.rule.filters.get(name)
            if values is not None and not (row.facts[name] in values if name in row.facts else row.is_all):
                return False
        return True

    def matches_any_row(self, rows: RequestRows) -> bool:
        """Whether the rule's filters name a row of a request."""
        return any(map(self.matches_row, rows.whole.leaves()))

    def depth_in(self, rows: RequestRows) -> int:
        """Return how deep in the request's rows the rule looks; 0 for a rule that is not about rows."""
        return max((rows.depths.get(name, 0) for name in ROW_FILTERS if name in self.rule.filters), default=0)

    def see(self, facts: Mapping[str, Any], rows: RequestRows | None = None) -> None:
        """Note a request of the rule's APIs for `RuleState`, as long as none has passed its filters."""
        if self.matched:
            return
        self._came += 1
        named = [facts] if rows is None else [facts, *(row.facts for row in rows.whole.leaves())]
        for name in self.rule.filters:
            for value in (one.get(name) for one in named):
                values = self._seen.setdefault(name, {})
                if value not in (None, "") and len(values) < VALUES_SEEN_MAX:
                    values[value] = None

    def count(self) -> bool:
        """Count something that passed the filters; return whether the rule fires for it."""
        self.matched += 1
        if self._released.is_set():
            return False
        rule = self.rule
        match rule.count_word:
            case "nth":
                return self.matched == rule.count_value
            case "first":
                return self.matched <= rule.count_value
            case "every":
                return self.matched % rule.count_value == 0
            case "with_probability":
                return self._random.random() < rule.count_value
        return True

    def fire(self) -> None:
        """Note that the rule acted."""
        self.fired += 1
        if self.fired <= TIMES_LOGGED or self.fired % TIMES_PER_LINE == 0:
            log.info("a rule fired", rule=self.rule.text, id=self.id, times=self.fired)
        self._changed()

    def note(self, text: str) -> None:
        """Keep a remark about why the rule did not fire."""
        self.notes[text] = None

    async def hold(self) -> None:
        """Wait for the release."""
        self.held += 1
        try:
            self.fire()
            await self._released.wait()
        finally:
            self.held -= 1
            self._changed()

    def pauses(self, client_id: str) -> bool:
        """Return whether the rule pauses this client, and was not released."""
        return client_id in self.rule.filters["client_id"] and not self._released.is_set()

    def release(self) -> None:
        """Release the requests that wait. From now on the rule acts on none."""
        self._released.set()
        self._changed()
