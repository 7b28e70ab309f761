"""The marker of a transaction that is written by another leader than the records."""

from confluent_kafka import Producer

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import READ_COMMITTED, call, create_topic, move_leader
from tests.common.batches import CONTROL, read_batches

REPLICAS = (1, 2, 3)
TIMEOUT_S = 60


def test_an_epoch_of_records_ends_before_the_marker_of_the_next_leader(kafka: Cluster, name: str) -> None:
    """A consumer at read_committed that has passed the marker asks where the epoch of the last record ended: an end
    before its own position is no loss of data (franz-go 1.22.3 took it for one, twmb/franz-go #1530).
    """
    topic = create_topic(kafka, name, REPLICAS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"coffee")
    assert producer.flush(TIMEOUT_S) == 0
    move_leader(kafka, name, 0, to=2)
    producer.commit_transaction(TIMEOUT_S)
    row = topic.wait_for_watermark(2, 2, isolation=READ_COMMITTED)
    epochs = [(one.leader_epoch, bool(one.attributes & CONTROL)) for one in read_batches(row["records"])]
    assert epochs == [(0, False), (1, True)]
    asked = {"partition": 0, "current_leader_epoch": 1, "leader_epoch": 0}
    values = {"replica_id": -1, "topics": [{"topic": name, "partitions": [asked]}]}
    (found,) = call(kafka, 2, "OffsetForLeaderEpoch", 4, values)["topics"]
    (end,) = found["partitions"]
    assert (end["error_code"], end["leader_epoch"], end["end_offset"]) == (0, 0, 1)
