"""Wrong: who is asked to stop commits the offsets of orders whose receipts still wait for their batch."""

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True, "linger.ms": 500})
consumer.subscribe(["orders"])
pending = 0
while running():
    order = consumer.poll(0.1)
    if order is not None and not order.error():
        producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
        pending += 1
    elif pending:
        producer.flush(10)
        consumer.commit(asynchronous=False)
        pending = 0
if pending:
    consumer.commit(asynchronous=False)
consumer.close()
