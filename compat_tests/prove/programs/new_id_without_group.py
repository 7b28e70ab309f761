"""Wrong: the transactional id is new at each start, and the offsets come without the group's metadata, by its name.

Nothing fences a member that was late: neither its transactional id, which no other has, nor its generation.
"""

import uuid

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka_python_settings import CONSUMER, PRODUCER
from service import running

consumer = KafkaConsumer(**CONSUMER)
producer = KafkaProducer(**PRODUCER, transactional_id=f"billing-{uuid.uuid4()}")
producer.init_transactions()
consumer.subscribe(["orders"])
consumer.partitions_for_topic("orders")  # or it joins twice, and poll's time-out may keep it from its end
while running():
    polled = consumer.poll(timeout_ms=100, max_records=4)
    if not polled:
        continue
    producer.begin_transaction()
    written = [
        producer.send("receipts", b"paid: " + order.value, order.key)
        for orders in polled.values()
        for order in orders
    ]
    for one in written:
        one.get(10)  # kafka-python begins anew after some errors, and its commit tells nothing of them
    offsets = {where: OffsetAndMetadata(orders[-1].offset + 1, "", -1) for where, orders in polled.items()}
    producer.send_offsets_to_transaction(offsets, "billing")
    producer.commit_transaction()
consumer.close()
producer.close()
