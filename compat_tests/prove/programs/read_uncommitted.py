"""Wrong: of two steps, the second one reads at read_uncommitted what the first one writes in transactions."""

from confluent_kafka import Consumer, Producer
from confluent_settings import CONSUMER, PRODUCER, connected, good
from service import INSTANCE, running


class Step:
    def __init__(self, source, target, work, isolation):
        self.target, self.work = target, work
        self.consumer = Consumer({**CONSUMER, "group.id": source, "isolation.level": isolation})
        self.producer = connected(Producer({**PRODUCER, "transactional.id": f"{source}-{INSTANCE}"}))
        self.producer.init_transactions(10)
        self.consumer.subscribe([source])

    def run_once(self):
        records = good(self.consumer.consume(4, 0.05))
        if not records:
            return
        self.producer.begin_transaction()
        for record in records:
            self.producer.produce(self.target, self.work + record.value(), record.key())
        positions = self.consumer.position(self.consumer.assignment())
        metadata = self.consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction(positions, metadata, 10)
        self.producer.commit_transaction(10)


steps = [
    Step("orders", "priced", b"priced: ", "read_committed"),
    Step("priced", "receipts", b"paid: ", "read_uncommitted"),
]
while running():
    for step in steps:
        step.run_once()
for step in steps:
    step.consumer.close()
