"""A broker with rules, and requests for their tests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from oncelog.broker.faults.fault_rules import FaultRules
from oncelog.broker.faults.state import RuleState
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.common.batches import batch
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient

REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


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


async def list_groups(client: SimClient) -> int:
    """Send a ListGroups request and return its error code."""
    response = await client.call(ListGroupsRequest(), 2, ListGroupsResponse)
    return int(response.error_code)


def two_topics(*rows: tuple[str, int]) -> ProduceRequest:
    """Return a Produce with a batch for each topic and partition."""
    topics = [
        TopicProduceData(name, partition_data=[PartitionProduceData(index, batch())]) for name, index in rows
    ]
    return ProduceRequest(None, 1, 30_000, topics)


def codes(response: Any) -> list[tuple[str, int, int]]:
    """Return topic, partition and error code of each row of a Produce response."""
    return [
        (topic.name, row.index, row.error_code)
        for topic in response.responses
        for row in topic.partition_responses
    ]
