"""Transactions whose requests are handled twice, or whose responses are lost: what is committed is there once."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.schema import Message
from tests.faults.rules import Ruled, ruled
from tests.harness.requests import create_topic
from tests.harness.sim_broker import EPOCH_MS
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    GROUP,
    OLDEST,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    Versions,
    committed_offset,
)


class Reconnecting(Link):
    """Sends a request again, as it was, on a new connection when the broker closes the old one."""

    def __init__(self, it: Ruled) -> None:
        super().__init__(it.broker.connect())
        self.it = it
        self.lost = 0

    async def call(self, request: Message, version: int, response: type[Message]) -> Any:
        while True:
            try:
                return await self.client.call(request, version, response)
            except ConnectionEndedError:
                self.lost += 1
                self.client = self.it.broker.connect()


@pytest.mark.parametrize("versions", [OLDEST, CLASSIC, V2], ids=["oldest", "classic", "v2"])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    "action", [{"duplicate": True}, {"drop_response": "close"}], ids=["duplicate", "lost"]
)
@simulated
async def test_transactions_are_there_once(action: dict[str, Any], every: int, versions: Versions) -> None:
    async with ruled() as it:
        link = Reconnecting(it)
        await create_topic(link.client, "t")
        producer = TransactionalProducer(link, "tx", versions)
        await producer.init()
        await producer.find("g", GROUP)
        count = {"first": 3} if every == 1 else {"every": 2}
        rules = [
            it.add(on=api, transactional_id="tx", **count, **action)
            for api in ("Produce", "TxnOffsetCommit", "EndTxn")
        ]
        expected = []
        for number in range(4):
            values = [b"%d-%d" % (number, index) for index in range(2)]
            await producer.send("t", 0, values, EPOCH_MS)
            await producer.send("t", 0, [b"more"], EPOCH_MS)
            await producer.send_offset("g", "t", 0, number)
            commits = number != 1
            await producer.end(commit=commits)
            expected += [*values, b"more"] if commits else []
        reader = CommittedReader("t", 0)
        while await reader.poll(link.client):
            pass
        assert list(reader.values.values()) == expected
        assert await committed_offset(link, "g", "t", 0) == 3
        fired = [it.state(rule).fired for rule in rules]
        assert min(fired) >= 2
        assert link.lost == (0 if "duplicate" in action else sum(fired))
