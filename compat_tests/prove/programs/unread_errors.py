"""Wrong: nobody reads what became of a record: the offset of an order is committed though its receipt was refused."""

from confluent_kafka import Consumer, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import running

consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True})
consumer.subscribe(["orders"])
while running():
    order = consumer.poll(0.1)
    if order is None or order.error():
        continue
    producer.produce("receipts", b"paid: " + order.value(), order.key())
    producer.flush(10)
    consumer.commit(order, asynchronous=False)
consumer.close()
