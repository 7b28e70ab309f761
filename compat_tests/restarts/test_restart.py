"""A broker's state after a clean stop, and after a SIGKILL."""

import gc
from collections.abc import Callable

import pytest

from compat_tests.brokers import Broker
from compat_tests.clients.stock_clients import DEADLINE_S
from compat_tests.differential import Session
from tests.common.batches import batch, read_batches


def produce(session: Session, name: str, sequence: int, producer: int = 4000) -> tuple[int, int]:
    """Produce one record of an idempotent producer; the error and the base offset."""
    records = batch(1, producer=(producer, 0, sequence))
    row = session.produce(name, records)
    return row["error_code"], row["base_offset"]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_retries_of_older_batches_after_a_restart(
    own_broker: Callable[..., Broker], target: str, name: str, how: str
) -> None:
    """Both targets recognise a retry of the last batch; oncelog also recognises the four before it.

    Kafka's producer snapshot has only a producer's last batch: 4.3.1 returns OUT_OF_ORDER_SEQUENCE_NUMBER for the
    others, after a kill too, and the client's retry is lost. oncelog finds them in the log's tail.
    """
    broker = own_broker()
    session = Session(broker.bootstrap)
    session.topic(name)
    for sequence in range(8):
        assert produce(session, name, sequence) == (0, sequence)
    session.close()
    getattr(broker, how)()
    broker.start()
    session = Session(broker.bootstrap)
    session.wait_for_leaders(name, 1)
    assert produce(session, name, 7) == (0, 7)
    older = [produce(session, name, sequence) for sequence in (6, 5, 4, 3)]
    assert older == ([(45, -1)] * 4 if target == "kafka" else [(0, 6), (0, 5), (0, 4), (0, 3)])
    assert produce(session, name, 2)[0] == 45
    assert produce(session, name, 9)[0] == 45
    assert produce(session, name, 8) == (0, 8)
    session.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_topics_and_records_survive(own_broker: Callable[..., Broker], name: str, how: str) -> None:
    broker = own_broker()
    session = Session(broker.bootstrap)
    topic_id = session.topic(name, 3, {"retention.ms": "-1", "segment.bytes": "1048576"})
    for number in range(50):
        assert session.produce(name, batch(2), partition=number % 3)["error_code"] == 0
    last = session.produce(name, batch(1), partition=0)
    assert last["base_offset"] == 34
    before = session.call_unobserved("Metadata", 12, {"topics": [{"name": name}]})["topics"][0]
    session.close()
    getattr(broker, how)()
    broker.start()
    session = Session(broker.bootstrap)
    session.wait_for_leaders(name, 3)
    after = session.call_unobserved("Metadata", 12, {"topics": [{"name": name}]})["topics"][0]
    assert after["topic_id"] == topic_id
    for old, new in zip(before["partitions"], after["partitions"], strict=True):
        assert new["leader_epoch"] >= old["leader_epoch"]  # clients ignore metadata whose epoch goes back
    ends = []
    for partition in range(3):
        rows = [{"partition": partition, "partition_max_bytes": 1 << 20}]
        response = session.call_unobserved(
            "Fetch", 13, {"topics": [{"topic_id": topic_id, "partitions": rows}]}
        )
        row = response["responses"][0]["partitions"][0]
        found = list(read_batches(row["records"]))
        assert [one.base_offset for one in found[:2]] == [0, 2]
        ends.append(found[-1].base_offset + found[-1].record_count)
    assert ends == [35, 34, 32]
    rows = session.call_unobserved(
        "DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": name}]}
    )
    configs = {row["name"]: row["value"] for row in rows["results"][0]["configs"]}
    assert (configs["retention.ms"], configs["segment.bytes"]) == ("-1", "1048576")
    assert session.produce(name, batch(1))["base_offset"] == 35
    session.close()


def test_leader_epochs_after_a_kill(own_broker: Callable[..., Broker], name: str) -> None:
    """A killed leader returns with a higher epoch; readers with the old epoch are fenced and ask where it ended."""
    broker = own_broker()
    session = Session(broker.bootstrap)
    topic_id = session.topic(name)
    for _ in range(4):
        assert session.produce(name, batch(2))["error_code"] == 0
    session.close()
    broker.kill()
    broker.start()
    session = Session(broker.bootstrap)
    session.wait_for_leaders(name, 1)
    partition = session.call_unobserved("Metadata", 12, {"topics": [{"name": name}]})["topics"][0][
        "partitions"
    ][0]
    epoch = partition["leader_epoch"]
    assert epoch > 0
    assert session.produce(name, batch(1))["base_offset"] == 8

    def fetch(**fields: int) -> tuple[int, list[int]]:
        row = {"partition": 0, "fetch_offset": 6, "partition_max_bytes": 1 << 20, **fields}
        values = {"max_wait_ms": 0, "topics": [{"topic_id": topic_id, "partitions": [row]}]}
        found = session.call_unobserved("Fetch", 16, values)["responses"][0]["partitions"][0]
        return found["error_code"], [one.leader_epoch for one in read_batches(found["records"])]

    assert fetch() == (0, [0, epoch])
    assert fetch(current_leader_epoch=epoch) == (0, [0, epoch])
    assert fetch(current_leader_epoch=0) == (74, [])
    assert fetch(current_leader_epoch=epoch + 1) == (75, [])
    assert fetch(last_fetched_epoch=0) == (0, [0, epoch])

    def end_of(leader_epoch: int) -> tuple[int, int]:
        row = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": leader_epoch}
        response = session.call_unobserved(
            "OffsetForLeaderEpoch", 4, {"topics": [{"topic": name, "partitions": [row]}]}
        )
        found = response["topics"][0]["partitions"][0]
        return found["leader_epoch"], found["end_offset"]

    assert [end_of(0), end_of(epoch)] == [(0, 8), (epoch, 9)]
    assert end_of(epoch + 1) == (-1, -1)
    for timestamp, expected in ((-1, (9, epoch)), (-2, (0, 0))):
        row = {"partition_index": 0, "timestamp": timestamp}
        response = session.call_unobserved(
            "ListOffsets", 7, {"topics": [{"name": name, "partitions": [row]}]}
        )
        found = response["topics"][0]["partitions"][0]
        assert (found["offset"], found["leader_epoch"]) == expected
    session.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # kafka-python forgets sockets that were refused
def test_consumers_go_on_after_a_kill(own_broker: Callable[..., Broker], name: str) -> None:
    """Consumers find the broker again and go on at their positions, without gaps or duplicates."""
    from confluent_kafka import Consumer, TopicPartition
    from kafka import KafkaConsumer  # type: ignore[import-untyped,unused-ignore]
    from kafka import TopicPartition as Where

    broker = own_broker()
    session = Session(broker.bootstrap)
    session.topic(name)
    for _ in range(5):
        session.produce(name, batch(1))
    session.close()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    fast = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 2}
    confluent = Consumer({**settings, **fast})
    python = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    try:
        confluent.assign([TopicPartition(name, 0, 0)])
        python.assign([Where(name, 0)])
        python.seek(Where(name, 0), 0)
        for number in range(10):
            if number == 5:
                broker.kill()
                broker.start()
                session = Session(broker.bootstrap)
                session.wait_for_leaders(name, 1)
                for _ in range(5):
                    session.produce(name, batch(1))
                session.close()
            message = confluent.poll(DEADLINE_S)
            while message is not None and message.error() is not None:  # an event of the broker's absence
                message = confluent.poll(DEADLINE_S)
            assert message is not None
            assert message.offset() == number
            assert next(python).offset == number
    finally:
        confluent.close()
        python.close()
        del python
        gc.collect()  # warn of the forgotten sockets here, and not in a later test
