"""One transaction, and a crash at every single change of the disk on its way: the table of docs/exactly-once.md.

After each the producer either goes on, repeating what was not answered, or has died with the broker and another takes
its id over. `test_exactly_once` does this at random with everything else going wrong; here nothing is left to chance.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, Literal

import pytest
import trio

from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.schema import Message
from tests.common.batches import CONTROL, Batch, read_batches
from tests.harness.requests import create_topic
from tests.harness.sim_broker import DATA_DIR, SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    GROUP,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    Versions,
    committed_offset,
    rows_of,
)

ID = "id"
GROUP_ID = "g"
PARTITIONS = 2
Kind = Literal["process", "power"]
LOST = (ConnectionEndedError, OSError, trio.ClosedResourceError, trio.BrokenResourceError)
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
STATE_AT = 2 + 8 + 2 + 4
"""In a record's value: behind its version, the producer id, the epoch and the time-out."""


class PatientLink(Link):
    """Repeats a request without a response, unchanged, even after the broker has died."""

    def __init__(self, broker: SimBroker) -> None:
        self.broker = broker
        self.connected: SimClient | None = None
        self.up_again = trio.Event()
        self.loses: type[Message] | None = None
        """The response to a request of this type gets lost, once."""
        self.lost = trio.Event()

    async def call(self, request: Message, version: int, response: type[Message]) -> Any:
        while True:
            try:
                self.connected = self.connected or self.broker.connect()
                received = await self.connected.call(request, version, response)
                if self.loses is not type(request) or self.lost.is_set():
                    return received
                self.lost.set()
                await self.up_again.wait()
                self.connected = None
            except LOST:
                self.connected = None
                if self.broker.is_dead:
                    await self.up_again.wait()
                await trio.sleep(0.005)


class Run:
    """Crash at the change with that number, counted from the transaction's first; no crash if there are fewer."""

    def __init__(self, broker: SimBroker, versions: Versions, *, commit: bool, survives: bool) -> None:
        self.broker = broker
        self.commit = commit
        self.survives = survives
        self.link = PatientLink(broker)
        self.producer = TransactionalProducer(self.link, ID, versions)
        self.life = trio.CancelScope()
        self.ended = False

    async def prepare(self) -> None:
        """A transaction before: topics, coordinators and files are there."""
        await create_topic(self.broker.connect(), "t", PARTITIONS)
        await self.producer.init()
        await self.producer.find(GROUP_ID, GROUP)
        await self.transaction(b"before", 1, commit=True)

    async def transaction(self, value: bytes, offset: int, *, commit: bool) -> None:
        for partition in range(PARTITIONS):
            await self.producer.send("t", partition, [value], self.broker.clock.now_ms())
        await self.producer.send_offset(GROUP_ID, "t", 0, offset)
        await self.producer.end(commit=commit)

    async def under_test(self) -> None:
        with self.life:
            await self.transaction(b"test", 2, commit=self.commit)
            self.ended = True

    async def crash(self, at: int, kind: Kind) -> str | None:
        """Die at that change of the disk; how far it had come. None: there is no such change."""
        broker = self.broker
        broker.files.crash_at = broker.files.steps + at
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.under_test)
            while not (broker.is_dead or self.ended or self.link.lost.is_set()):
                await trio.sleep(0.001)
            if self.ended:
                return None
            if not self.survives:
                self.life.cancel()
            await broker.crash(kind)
            found = how_far(broker)
            await broker.start()
            await broker.node.logs.recovered()
            self.link.up_again.set()
        return found

    async def check(self, found: str | None) -> None:
        """All or nothing, in the topic and the group, and nothing is open any more."""
        committed = self.commit and self.ended
        if not self.survives and found is not None:
            heir = TransactionalProducer(self.link, ID, V2)
            await heir.init()
            await heir.find(GROUP_ID, GROUP)
            committed = self.commit and found.startswith(("Prepare", "Complete, "))
        client = self.broker.connect()
        for partition in range(PARTITIONS):
            reader = CommittedReader("t", partition)
            while await reader.poll(client):
                pass
            assert reader.position == reader.high_watermark == reader.last_stable_offset
            assert list(reader.values.values()) == [b"before", b"test"][: 1 + committed]
        assert await committed_offset(self.link, GROUP_ID, "t", 0) == 1 + committed


def how_far(broker: SimBroker) -> str:
    """The last record of the id on the disk, and how many partitions have their marker."""
    files: Any = broker.files
    logs = [name for name in files.listdir(DATA_DIR) if name.rpartition("-")[0] in LOGS]
    batches = {name: read(files.read_bytes(f"{DATA_DIR}/{name}/{0:020}.log")) for name in logs}
    [last] = [rows[-1] for name, rows in batches.items() if name.startswith("__transaction_state") and rows]
    state = STATES[rows_of(last)[-1][2][STATE_AT]]
    ends = Counter(
        name
        for name, rows in batches.items()
        for one in rows
        if one.attributes & CONTROL and one.producer_id >= 0
    )
    written = sum(1 for count in ends.values() if count == 2)
    if state.startswith("Complete") and not written:
        return "Complete of the one before"
    return f"{state.removesuffix('Commit').removesuffix('Abort')}, {written} markers"


LOGS = ("t", "__consumer_offsets", "__transaction_state")


def read(data: bytes) -> list[Batch]:
    """Return the complete batches before the first that a crash has cut or lost."""
    found: list[Batch] = []
    with suppress(AssertionError):
        for one in read_batches(data):
            found.append(one)
    return found


ROWS = {"Complete of the one before", "Ongoing, 0 markers"}
ROWS |= {f"Prepare, {written} markers" for written in range(PARTITIONS + 2)} | {"Complete, 3 markers"}


@pytest.mark.slow
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("versions", [CLASSIC, V2])
@pytest.mark.parametrize("kind", ["process", "power"])
def test_every_crash(kind: Kind, versions: Versions, commit: bool) -> None:
    config = {"log.flush.interval.messages": "1"} if kind == "power" else {}
    rows: set[str] = set()

    async def one(at: int, loses: type[Message] | None) -> bool:
        async with SimBroker(at, config) as broker:
            broker.files.latency_s = 0.001 if config else 0
            # Each point is met with both a commit and an abort: once the producer survives, once it does not.
            run = Run(broker, versions, commit=commit, survives=at % 2 == commit)
            await run.prepare()
            run.link.loses = loses
            found = await run.crash(at, kind)
            with trio.fail_after(200):
                await run.check(found)
            if found is not None:
                rows.add(found)
            return found is not None

    @simulated
    async def every() -> None:
        at = 0
        while await one(at, None):
            at += 1
        # Everything is written and the response is sent, but it does not arrive.
        for more in range(2):
            assert await one(at + more, EndTxnRequest)

    every()
    assert rows == ROWS
