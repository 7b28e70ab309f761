"""Wrong: it asks where to begin, and ends only then what another instance has open."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_settings import CONSUMER, PRODUCER, connected, good
from service import running

consumer = Consumer(CONSUMER)
consumer.assign([TopicPartition("orders", 0)])
producer = connected(Producer({**PRODUCER, "transactional.id": "billing-orders-0"}))
producer.init_transactions(10)
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
