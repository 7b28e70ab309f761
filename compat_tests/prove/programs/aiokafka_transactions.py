"""Right alone, wrong in twos: aiokafka commits offsets in transactions without the member's generation.

Only a producer with the same transactional id, which is the argument, fences this one. Two instances need two ids, and
then nothing fences who goes on after the other one has taken over.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from service import SERVERS, running

COMMON = {
    "bootstrap_servers": SERVERS,
    "retry_backoff_ms": 20,  # shortens a trial
}


async def main():
    consumer = AIOKafkaConsumer(
        "orders",
        **COMMON,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6000,  # shortens a trial
        heartbeat_interval_ms=100,  # shortens a trial
        fetch_max_wait_ms=100,  # shortens a trial
    )
    producer = AIOKafkaProducer(**COMMON, transactional_id=sys.argv[1])
    await producer.start()
    await consumer.start()
    while running():
        polled = await consumer.getmany(timeout_ms=100, max_records=4)
        if not polled:
            continue
        async with producer.transaction():
            written = [
                await producer.send("receipts", b"paid: " + order.value, order.key)
                for orders in polled.values()
                for order in orders
            ]
            await asyncio.gather(*written)  # aiokafka commits a transaction whose records were refused
            offsets = {where: orders[-1].offset + 1 for where, orders in polled.items()}
            await producer.send_offsets_to_transaction(offsets, "billing")
    await consumer.stop()
    await producer.stop()


asyncio.run(main())
