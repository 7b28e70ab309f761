"""Wrong: who is asked to stop commits the position, which is behind orders that are read and not done."""

import signal
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER, good
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


def stop(number, frame):
    with suppress(KafkaException):  # there may be nothing new to commit
        consumer.commit(asynchronous=False)
    raise SystemExit(0)


signal.signal(signal.SIGTERM, stop)
consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True})
consumer.subscribe(["orders"])
while running():
    orders = good(consumer.consume(4, 0.1))
    for order in orders:
        producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
        producer.flush(10)
    if orders:
        consumer.commit(orders[-1], asynchronous=False)
