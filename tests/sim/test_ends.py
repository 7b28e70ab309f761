"""A broker that stops, or that loses all peers, while responses of every kind are pending: nothing is left behind.

No file stays held, no coroutine unawaited (that would be a warning, which is an error), and what is ours is no bug.
"""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest
import trio

from oncelog.wire.messages.end_txn import EndTxnRequest
from tests.common.batches import batch, record
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.requests import create_topic, fetch_request, produce, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import V2, Link, TransactionalProducer

DISK_S = 5.0
JUST = 0.0001
ENDED = (ConnectionEndedError, OSError, trio.ClosedResourceError)


async def owe_everything(broker: SimBroker, producer: TransactionalProducer) -> list[SimClient]:
    """Return connections with one or several pending responses each."""
    clients = [broker.connect() for _ in range(6)]
    flushed, blocked, delayed, transactional, ending, silent = clients
    for _ in range(3):
        await flushed.send(produce_request("t", batch()), 9)
    await flushed.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=100), 12)
    await blocked.send(fetch_request("t", 0), 12)
    await blocked.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=1_000_000), 12)
    await delayed.send(fetch_request("t", 9, max_wait_ms=60_000), 12)
    await transactional.send(producer.produce_request("t", 1, [b"value"], broker.clock.now_ms()), 12)
    await transactional.send(produce_request("t", batch()), 9)
    await ending.send(EndTxnRequest("id", producer.producer_id, producer.epoch, True), 5)
    await ending.send(produce_request("t", batch()), 9)
    await silent.send(produce_request("t", batch(), acks=0), 9)
    return clients


async def join(member: SimMember) -> None:
    with suppress(*ENDED):
        await member.join()


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0, JUST, DISK_S / 2, DISK_S - JUST, DISK_S, DISK_S + JUST])
@pytest.mark.parametrize("ends", ["stopped", "lost"])
def test_while_everything_is_owed(after_s: float, ends: str) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker(config={"log.flush.interval.messages": "1"}, pipe_bytes_max=4096) as broker:
            client = await coordinated(broker)
            await create_topic(client, "t", 2)
            for _ in range(3):
                await produce(client, "t", batch([record(None, bytes(20_000))]))
            producer = TransactionalProducer(Link(broker.connect()), "id", V2)
            await producer.init()
            await producer.send("t", 1, [b"value"], broker.clock.now_ms())
            broker.files.latency_s = DISK_S
            clients = await owe_everything(broker, producer)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(join, SimMember(broker))
                await trio.sleep(after_s)
                if ends == "lost":
                    for one in clients:
                        one.transport.break_off()
                    await trio.sleep(40 * DISK_S)
                    assert broker.files.held == 0
                await broker.stop()
                nursery.cancel_scope.cancel()
            assert broker.files.held == 0

    run()
    gc.collect()
