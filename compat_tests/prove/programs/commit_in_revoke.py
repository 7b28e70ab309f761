"""Wrong: when partitions are taken away, the position is committed, with orders that are not done yet."""

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


def revoked(consumer, partitions):
    if pending:
        consumer.commit(asynchronous=False)
        pending.clear()


consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True})
consumer.subscribe(["orders"], on_revoke=revoked)
pending = []
while running():
    order = consumer.poll(1)
    if order is not None and not order.error():
        pending.append(order)
    elif pending:
        for order in pending:
            producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
        producer.flush(10)
        consumer.commit(pending[-1], asynchronous=False)
        pending.clear()
consumer.close()
