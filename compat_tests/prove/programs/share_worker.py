"""Right for who promises at least once: a share group's worker accepts an order when its receipt is acknowledged."""

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_settings import COMMON, PRODUCER, SHARE_CONSUMER, good
from service import running


def delivered(error, message):
    if error:
        raise KafkaException(error)


# A new share group begins at the end of a topic, unless its configuration says otherwise.
earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
group = ConfigResource(ResourceType.GROUP, "billing", incremental_configs=[earliest])
admin = AdminClient(COMMON)
admin.incremental_alter_configs([group])[group].result(10)
producer = Producer({**PRODUCER, "enable.idempotence": True})
with ShareConsumer({**SHARE_CONSUMER, "share.acknowledgement.mode": "explicit"}) as consumer:
    consumer.subscribe(["orders"])
    while running():
        orders = good(consumer.poll(0.1))
        for order in orders:
            producer.produce("receipts", b"paid: " + order.value(), order.key(), on_delivery=delivered)
        producer.flush(10)
        for order in orders:
            consumer.acknowledge(order, AcknowledgeType.ACCEPT)
        if orders:
            consumer.commit_sync(10)
