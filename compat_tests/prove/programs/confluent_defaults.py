"""Right: orders are read, and receipts and offsets written, in one transaction; with librdkafka's defaults."""

import os

from confluent_kafka import Consumer, KafkaException, Producer
from service import running

servers = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
consumer = Consumer(
    {**servers, "group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
)
producer = Producer({**servers, "transactional.id": "billing"})
producer.init_transactions()
consumer.subscribe(["orders"])


def go_back():
    """Read again from the committed offsets, or from the beginning."""
    for partition in consumer.committed(consumer.assignment(), 10):
        partition.offset = max(partition.offset, 0)
        consumer.seek(partition)


while running():
    order = consumer.poll(0.5)
    if order is None or order.error():
        continue
    producer.begin_transaction()
    try:
        producer.produce("receipts", b"paid: " + order.value(), order.key())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction()
        go_back()
consumer.close()
