"""Right, and late: Quix Streams has a new transactional id at each start, and gives the group's metadata.

Nobody ends the transaction that a killed process has left open: readers wait until it times out.
"""

from quixstreams import Application
from service import FOLDER, SERVERS

FAST = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "metadata.recovery.strategy": "none",
}
app = Application(
    broker_address=SERVERS,
    consumer_group="billing",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.05,
    state_dir=FOLDER,
    producer_extra_config=FAST,
    consumer_extra_config={
        **FAST,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 100,
        "fetch.wait.max.ms": 100,
    },
    consumer_poll_timeout=0.05,
)
orders = app.topic("orders", value_deserializer="bytes")
receipts = app.topic("receipts", value_serializer="bytes")
app.dataframe(orders).apply(lambda order: b"paid: " + order).to_topic(receipts)
app.run()
