"""Wrong: every instance has the same transactional id, so that each start of one fences the other."""

from confluent_kafka import Consumer, Producer
from confluent_settings import CONSUMER, PRODUCER, connected, good
from service import running

consumer = Consumer(CONSUMER)
producer = connected(Producer({**PRODUCER, "transactional.id": "billing"}))
producer.init_transactions(10)
consumer.subscribe(["orders"])
while running():
    orders = good(consumer.consume(4, 0.05))
    if not orders:
        continue
    producer.begin_transaction()
    for order in orders:
        producer.produce("receipts", b"paid: " + order.value(), order.key())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 10)
    producer.commit_transaction(10)
consumer.close()
