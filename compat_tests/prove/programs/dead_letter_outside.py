"""Wrong: a bad order goes to the dead letters by a producer of its own, outside the transaction that skips it."""

import json

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_settings import CONSUMER, PRODUCER, connected, good
from service import INSTANCE, running


def delivered(error, message):
    if error:
        raise KafkaException(error)


consumer = Consumer(CONSUMER)
producer = connected(Producer({**PRODUCER, "transactional.id": f"billing-{INSTANCE}"}))
dead_letters = Producer({**PRODUCER, "enable.idempotence": True})
producer.init_transactions(10)
consumer.subscribe(["orders"])
while running():
    orders = good(consumer.consume(4, 0.05))
    if not orders:
        continue
    producer.begin_transaction()
    for order in orders:
        try:
            cents = json.loads(order.value())["cents"]
            producer.produce("receipts", b"paid: %d" % cents, order.key())
        except ValueError:
            dead_letters.produce("dead-letters", order.value(), order.key(), on_delivery=delivered)
            assert dead_letters.flush(10) == 0
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 10)
    producer.commit_transaction(10)
consumer.close()
