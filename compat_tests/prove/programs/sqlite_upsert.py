"""Right: each order is a row of a table, by its number. Who reads it twice writes the same row twice."""

import json
import sqlite3

from confluent_kafka import Consumer
from confluent_settings import CONSUMER
from service import FOLDER, running

table = sqlite3.connect(f"{FOLDER}/receipts.db")
table.execute("CREATE TABLE IF NOT EXISTS receipts (number INTEGER PRIMARY KEY, cents INTEGER)")
consumer = Consumer(CONSUMER)
consumer.subscribe(["orders"])
while running():
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    order = json.loads(message.value())
    with table:
        table.execute("INSERT OR REPLACE INTO receipts VALUES (?, ?)", (order["order"], order["cents"]))
    consumer.commit(message, asynchronous=False)
consumer.close()
