"""Right: the offsets are in the database of the results, and both change in one of its transactions."""

import json
import sqlite3

from confluent_kafka import Consumer
from confluent_settings import CONSUMER
from service import FOLDER, running

table = sqlite3.connect(f"{FOLDER}/receipts.db")
table.execute("CREATE TABLE IF NOT EXISTS receipts (number INTEGER, cents INTEGER)")
table.execute("CREATE TABLE IF NOT EXISTS offsets (partition INTEGER PRIMARY KEY, next INTEGER)")


def begin(consumer, partitions):
    for one in partitions:
        with table:
            table.execute("INSERT OR IGNORE INTO offsets VALUES (?, 0)", (one.partition,))
        (one.offset,) = table.execute(
            "SELECT next FROM offsets WHERE partition = ?", (one.partition,)
        ).fetchone()
    consumer.assign(partitions)


consumer = Consumer(CONSUMER)
consumer.subscribe(["orders"], on_assign=begin)
while running():
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    order = json.loads(message.value())
    with table:
        moved = table.execute(
            "UPDATE offsets SET next = ? WHERE partition = ? AND next = ?",
            (message.offset() + 1, message.partition(), message.offset()),
        )
        if moved.rowcount == 0:
            raise SystemExit("another instance has this partition now")
        table.execute("INSERT INTO receipts VALUES (?, ?)", (order["order"], order["cents"]))
consumer.close()
