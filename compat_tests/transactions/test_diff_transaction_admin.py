"""Requests of administrators about transactions, field by field, on both targets."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.transactions.wire import Producer, observe_partition, observe_producers
from tests.common.definitions import Fields


@pytest.mark.parametrize("version", [1, 2])
def test_write_txn_markers(pair: Pair, name: str, version: int) -> None:
    """As kafka-transactions sends it to abort a hanging transaction."""

    def mark(session: Session, producer: Producer, **changes: object) -> None:
        marker: Fields = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": [{"name": name, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        if version >= 2:
            marker["transaction_version"] = 0
        marker |= changes
        response = session.call_unobserved("WriteTxnMarkers", version, {"markers": [marker]})
        for row in response["markers"][0]["topics"]:
            row["partitions"].sort(key=lambda one: one["partition_index"])
        session.observe(f"WriteTxnMarkers {changes}", response)

    def scenario(session: Session) -> None:
        session.topic(name)
        producer = Producer(session, name)
        producer.init()
        producer.init()
        producer.add([(name, 0)])
        producer.send(name, 0, 2)
        mark(session, producer, producer_epoch=producer.epoch - 1)
        mark(session, producer, coordinator_epoch=-1)
        observe_partition(session, name)
        producer.send(name, 0, 2)
        mark(session, producer, coordinator_epoch=7)
        mark(session, producer, coordinator_epoch=6)
        mark(session, producer, topics=[{"name": name, "partition_indexes": [0, 3]}])
        mark(session, producer, topics=[{"name": f"{name}-unknown", "partition_indexes": [0]}])
        mark(session, producer, producer_id=1 << 41)
        session.call("WriteTxnMarkers", version, {"markers": []})
        observe_producers(session, name)
        observe_partition(session, name)

    pair.compare(scenario)


@pytest.mark.parametrize("newer_first", [True, False])
def test_markers_of_two_coordinators(pair: Pair, name: str, newer_first: bool) -> None:
    """A replaced coordinator still writes markers, in another order than its successor, for two transactions."""

    def mark(
        session: Session, producer: Producer, partition: int, coordinator_epoch: int, commit: bool
    ) -> None:
        marker: Fields = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": commit,
            "topics": [{"name": name, "partition_indexes": [partition]}],
            "coordinator_epoch": coordinator_epoch,
        }
        session.call("WriteTxnMarkers", 1, {"markers": [marker]}, f"{partition} {coordinator_epoch}")

    def scenario(session: Session) -> None:
        session.topic(name, 2)
        producer = Producer(session, name)
        producer.init()
        for commit in (True, False):
            producer.add([(name, 0), (name, 1)])
            for partition in (0, 1):
                producer.send(name, partition, 2)
            order = [(0, 7), (0, 6), (1, 6), (1, 7)] if newer_first else [(0, 6), (1, 7), (0, 7), (1, 6)]
            for partition, epoch in order:
                mark(session, producer, partition, epoch, commit)
            for partition in (0, 1):
                observe_producers(session, name, partition)
                observe_partition(session, name, partition)

    pair.compare(scenario)


def test_list_and_describe(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        opened = Producer(session, f"{name}-open")
        opened.init()
        opened.add([(name, 0), (name, 1)])
        empty = Producer(session, f"{name}-empty")
        empty.init()
        pattern = f"{name}-.*"
        for state in ([], ["Ongoing"], ["Empty"], ["CompleteCommit", "Nonsense"], ["ongoing"]):
            values: Fields = {"state_filters": state, "transactional_id_pattern": pattern}
            response = session.call_unobserved("ListTransactions", 2, values)
            response["transaction_states"].sort(key=lambda row: row["transactional_id"])
            session.observe(f"ListTransactions {state}", response)
        for more in (
            {"producer_id_filters": [opened.producer_id]},
            {"transactional_id_pattern": f"{name}-e"},
            {"transactional_id_pattern": f"{name}-o[a-z]+"},
            {"transactional_id_pattern": "("},
            {"duration_filter": 3_600_000, "state_filters": ["Ongoing"]},
        ):
            values = {"transactional_id_pattern": pattern, **more}
            response = session.call_unobserved("ListTransactions", 2, values)
            response["transaction_states"].sort(key=lambda row: row["transactional_id"])
            session.observe(f"ListTransactions {more.keys()}", response)
        opened.describe()
        empty.describe()
        for unknown in (f"{name}-unknown", ""):
            session.call("DescribeTransactions", 0, {"transactional_ids": [unknown]})
        for topic, partition in ((name, 5), (f"{name}-unknown", 0), ("a/b", 0)):
            rows = [{"name": topic, "partition_indexes": [partition]}]
            session.call("DescribeProducers", 0, {"topics": rows})
        opened.end(False)

    pair.compare(scenario)
