"""What races an end: writes that wait while it is taken, the time-out, another coordinator's markers.

Each is a case that `test_exactly_once` meets only by chance, or that was wrong once.
"""

from __future__ import annotations

import trio

from tests.sim.ask import create_topic
from tests.sim.broker import SimBroker
from tests.sim.run import simulated
from tests.sim.transactional import (
    CLASSIC,
    CommittedReader,
    Link,
    TransactionalProducer,
)
from wire.errors import ErrorCode
from wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from wire.messages.produce import ProduceRequest, ProduceResponse


@simulated
async def test_a_write_that_waits_while_its_transaction_ends_opens_none() -> None:
    """One of its partitions has the transaction open, the other must be asked for: both are looked at after the wait.

    Found by review: the first was written behind its marker, and hung.
    """
    async with SimBroker(config={"log.flush.interval.messages": "1"}) as broker:
        client = broker.connect()
        await create_topic(client, "t", 2)
        producer = TransactionalProducer(Link(client), "id", CLASSIC)
        await producer.init()
        await producer.send("t", 0, [b"first"], broker.clock.now_ms())
        now = broker.clock.now_ms()
        topics = [producer.produce_request("t", index, [b"late"], now).topic_data[0] for index in range(2)]
        ending, writing = broker.connect(), broker.connect()
        broker.files.latency_s = 1
        await ending.send(EndTxnRequest("id", producer.producer_id, producer.epoch, True), 3)
        await trio.sleep(0.1)
        await writing.send(ProduceRequest("id", -1, 30_000, topics), 9)
        answer = await writing.receive(ProduceResponse, 9)
        codes = [topic.partition_responses[0].error_code for topic in answer.responses]
        # To be tried again while the markers are under way; then it is too late.
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
        assert (await ending.receive(EndTxnResponse, 3)).error_code == 0
        await trio.sleep(10)
        broker.files.latency_s = 0
        answer = await client.ask(ProduceRequest("id", -1, 30_000, topics), 9, ProduceResponse)
        codes = [topic.partition_responses[0].error_code for topic in answer.responses]
        assert codes == [ErrorCode.INVALID_TXN_STATE] * 2
        for partition in range(2):
            reader = CommittedReader("t", partition)
            while await reader.poll(client):
                pass
            assert reader.position == reader.high_watermark == reader.last_stable_offset
            assert list(reader.values.values()) == ([b"first"] if partition == 0 else [])
