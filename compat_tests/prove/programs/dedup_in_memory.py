"""Wrong: the table of the orders that are done is in memory, and a restart begins with an empty one."""

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True})
consumer.subscribe(["orders"])
done = set()
while running():
    order = consumer.poll(0.1)
    if order is None or order.error():
        continue
    if order.value() not in done:
        producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
        producer.flush(10)
        done.add(order.value())
    consumer.commit(order, asynchronous=False)
consumer.close()
