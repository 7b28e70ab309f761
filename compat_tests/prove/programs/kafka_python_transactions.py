"""Right: orders are read, and receipts and offsets written, in one transaction; with kafka-python."""

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka_python_settings import CONSUMER, PRODUCER
from service import INSTANCE, running


class Membership(ConsumerRebalanceListener):
    """Keeps the metadata of the generation in which the partitions came: it fences this member when it is late."""

    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        self.metadata = consumer.group_metadata()


member = Membership()
consumer = KafkaConsumer(**CONSUMER)
producer = KafkaProducer(**PRODUCER, transactional_id=f"billing-{INSTANCE}")
producer.init_transactions()
consumer.subscribe(["orders"], listener=member)
consumer.partitions_for_topic("orders")  # or it joins twice, and poll's time-out may keep it from its end
while running():
    polled = consumer.poll(timeout_ms=100, max_records=4)
    if not polled:
        continue
    producer.begin_transaction()
    written = [
        producer.send("receipts", b"paid: " + order.value, order.key)
        for orders in polled.values()
        for order in orders
    ]
    for one in written:
        one.get(10)  # kafka-python begins anew after some errors, and its commit tells nothing of them
    offsets = {where: OffsetAndMetadata(orders[-1].offset + 1, "", -1) for where, orders in polled.items()}
    producer.send_offsets_to_transaction(offsets, member.metadata)
    producer.commit_transaction()
consumer.close()
producer.close()
