"""Wrong: nobody waits for the commit. It takes the position when it is sent: behind the next orders."""

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER, good
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True, "max.in.flight": 1})
consumer.subscribe(["orders"])
while running():
    orders = good(consumer.consume(3, 0.1))
    for order in orders:
        producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
        producer.flush(10)
    if orders:
        consumer.commit()
consumer.close()
