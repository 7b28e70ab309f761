"""A broker with rules, and requests for their tests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from oncelog.broker.faults.fault_rules import FaultRules
from oncelog.broker.faults.state import RuleState
from tests.harness.sim_broker import SimBroker


class Ruled:
    """A simulated broker and the rules in front of it."""

    def __init__(self, broker: SimBroker) -> None:
        self.broker = broker
        self.rules = FaultRules(random.Random(1))
        self.rules.attach(broker.node)

    def add(self, **words: Any) -> int:
        return self.rules.add(words)

    def state(self, rule_id: int) -> RuleState:
        [state] = [state for state in self.rules.states if state.id == rule_id]
        return state

    def counts(self, rule_id: int) -> tuple[int, int]:
        """How often the rule matched and fired."""
        state = self.state(rule_id)
        return state.matched, state.fired


@asynccontextmanager
async def ruled() -> AsyncIterator[Ruled]:
    async with SimBroker() as broker:
        yield Ruled(broker)
        assert broker.files.held == 0, "a file of a response was not released"
