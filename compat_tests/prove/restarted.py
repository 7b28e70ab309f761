"""The source of a program that makes a receipt of each order, and does so otherwise after a restart."""


def source_of(before: str, at_order: str) -> str:
    """Return the source. The statements `before` come first, and may ask `is_restarted`; `at_order` runs for each
    order.
    """
    indented = "".join(f"    {line}\n" for line in at_order.strip().splitlines())
    return f"""
import pathlib, sys, time
from confluent_kafka import Consumer, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import FOLDER

started = pathlib.Path(FOLDER, "started")
is_restarted = started.exists()
{before.strip()}
started.touch()
consumer = Consumer(CONSUMER)
producer = Producer(PRODUCER)
consumer.subscribe(["orders"])
while True:
    order = consumer.poll(1)
    if order is None or order.error():
        continue
{indented}    consumer.commit(order, asynchronous=False)
"""
