"""Wrong: it reads ahead, and commits the position, which is behind the orders that are still to be done."""

from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER, good
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True, "max.in.flight": 1})
consumer.subscribe(["orders"])
orders = []
while running():
    ahead = good(consumer.consume(3, 0.1))
    for order in orders:
        producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
        producer.flush(10)
    with suppress(KafkaException):  # there may be nothing new to commit
        consumer.commit(asynchronous=False)
    orders = ahead
consumer.close()
