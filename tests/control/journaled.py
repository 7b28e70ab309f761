"""A simulated broker with a journal, as the operations of the test kit use one: in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from oncelog.broker.control.errors import NotRunningError
from oncelog.broker.control.journal import Journal
from oncelog.broker.net.connection import Connection
from oncelog.broker.node.node import Node
from tests.harness.sim_broker import SimBroker


class Journaled:
    """What operations need of a `ControlledBroker`."""

    def __init__(self, sim: SimBroker, kept: int) -> None:
        self.sim = sim
        self.journal = Journal(kept)
        self.is_running = True

    @property
    def node(self) -> Node:
        if not self.is_running:
            raise NotRunningError("the broker is stopped: start() starts it again")
        return self.sim.node

    @property
    def connections(self) -> Collection[Connection]:
        return self.node.server.connections

    async def stop(self) -> None:
        self.is_running = False
        await self.sim.stop()
        self.journal.detach()

    async def start(self) -> None:
        await self.sim.start()
        self.journal.attach(self.sim.node)
        self.is_running = True


@asynccontextmanager
async def journaled(kept: int = 100, **config: str) -> AsyncIterator[Any]:
    """A `Journaled` broker; of type Any, because it stands in for another."""
    async with SimBroker(config={key.replace("_", "."): value for key, value in config.items()}) as sim:
        broker = Journaled(sim, kept)
        broker.journal.attach(sim.node)
        yield broker
