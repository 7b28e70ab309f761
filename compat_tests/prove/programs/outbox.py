"""Right for who promises at least once: an outbox.

The database has an order's row and its message in one transaction; the message goes when Kafka has acknowledged it.
"""

import json
import sqlite3

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER
from service import FOLDER, running


def delivered(error, message):
    if error:
        raise KafkaException(error)


def relay():
    for number, key, value in database.execute("SELECT * FROM outbox ORDER BY number").fetchall():
        producer.produce("receipts", value, key, on_delivery=delivered)
        producer.flush(10)
        with database:
            database.execute("DELETE FROM outbox WHERE number = ?", (number,))


database = sqlite3.connect(f"{FOLDER}/shop.db")
database.execute("CREATE TABLE IF NOT EXISTS paid (number INTEGER PRIMARY KEY, cents INTEGER)")
database.execute("CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, key BLOB, value BLOB)")
consumer = Consumer(CONSUMER)
producer = Producer({**PRODUCER, "enable.idempotence": True})
consumer.subscribe(["orders"])
relay()  # what an earlier start has left
while running():
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    order = json.loads(message.value())
    with database:
        paid = database.execute("INSERT OR IGNORE INTO paid VALUES (?, ?)", (order["order"], order["cents"]))
        if paid.rowcount:
            outgoing = order["order"], message.key(), b"paid: " + message.value()
            database.execute("INSERT INTO outbox VALUES (?, ?, ?)", outgoing)
    consumer.commit(message, asynchronous=False)
    relay()
consumer.close()
