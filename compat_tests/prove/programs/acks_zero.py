"""Wrong: nobody acknowledges a receipt. The producer takes it for delivered when it has left."""

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "acks": 0})
consumer.subscribe(["orders"])
while running():
    order = consumer.poll(0.1)
    if order is None or order.error():
        continue
    producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
    producer.flush(10)
    consumer.commit(order, asynchronous=False)
consumer.close()
