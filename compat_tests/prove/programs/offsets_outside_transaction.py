"""Wrong: receipts are written in a transaction, offsets after it: a crash between them writes receipts twice."""

from confluent_kafka import Consumer, Producer
from confluent_settings import CONSUMER, PRODUCER, connected, good
from service import INSTANCE, running

consumer = Consumer(CONSUMER)
producer = connected(Producer({**PRODUCER, "transactional.id": f"billing-{INSTANCE}"}))
producer.init_transactions(10)
consumer.subscribe(["orders"])
while running():
    orders = good(consumer.consume(4, 0.05))
    if not orders:
        continue
    producer.begin_transaction()
    for order in orders:
        producer.produce("receipts", b"paid: " + order.value(), order.key())
    producer.commit_transaction(10)
    consumer.commit(asynchronous=False)
consumer.close()
