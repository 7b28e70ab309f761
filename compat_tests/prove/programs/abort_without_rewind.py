"""Wrong: who aborts a transaction and goes on with the next poll has skipped the orders of the aborted one."""

from confluent_kafka import Consumer, KafkaException, Producer
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
    try:
        for order in orders:
            producer.produce("receipts", b"paid: " + order.value(), order.key())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 10)
        producer.commit_transaction(10)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(10)
consumer.close()
