"""Right for who promises at least once: an order's offset is committed when its receipt is acknowledged."""

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True})
consumer.subscribe(["orders"])
while running():
    order = consumer.poll(0.1)
    if order is None or order.error():
        continue
    producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
    producer.flush(10)
    consumer.commit(order, asynchronous=False)
consumer.close()
