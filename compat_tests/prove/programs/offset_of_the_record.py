"""Wrong: the offset of the last order is committed, not the next one: each start begins with an order that is done."""

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_settings import CONSUMER, PRODUCER, connected, good
from service import INSTANCE, running

member = []


def begin(consumer, partitions):
    """Begin at the committed offsets, and keep this generation's metadata: it fences this member when it is late."""
    member[:] = [consumer.consumer_group_metadata()]
    consumer.assign(committed(consumer, partitions))


def committed(consumer, partitions):
    found = consumer.committed(partitions, 10)
    for one in found:
        if one.error:
            raise KafkaException(one.error)
        one.offset = max(one.offset, 0)
    return found


consumer = Consumer(CONSUMER)
producer = connected(Producer({**PRODUCER, "transactional.id": f"billing-{INSTANCE}"}))
producer.init_transactions(10)
consumer.subscribe(["orders"], on_assign=begin)
while running():
    orders = good(consumer.consume(4, 0.05))
    if not orders:
        continue
    producer.begin_transaction()
    try:
        for order in orders:
            producer.produce("receipts", b"paid: " + order.value(), order.key())
        offset = TopicPartition("orders", order.partition(), order.offset())
        producer.send_offsets_to_transaction([offset], member[0], 10)
        producer.commit_transaction(10)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(10)
        for partition in committed(consumer, consumer.assignment()):
            consumer.seek(partition)
consumer.close()
