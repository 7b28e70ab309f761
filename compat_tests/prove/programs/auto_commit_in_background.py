"""Wrong: the consumer commits by itself what it has handed to a worker, whether the worker is done with it or not."""

import os
import queue
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


def work():
    try:
        while True:
            order = orders.get()
            time.sleep(0.05)  # the work
            producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
            producer.flush(10)
    except KafkaException:
        os._exit(1)


orders = queue.Queue()
consumer = Consumer({**CONSUMER, "enable.auto.commit": True, "auto.commit.interval.ms": 5})
producer = Producer({**PRODUCER, "enable.idempotence": True})
threading.Thread(target=work, daemon=True).start()
consumer.subscribe(["orders"])
while running():
    order = consumer.poll(0.1)
    if order is not None and not order.error():
        orders.put(order)
consumer.close()
