"""Transactional requests of producers, field by field, on both targets."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.transactions.wire import (
    GROUP,
    V2_END,
    V2_OFFSETS,
    V2_PRODUCE,
    Producer,
    find_coordinator,
    observe_committed,
    observe_partition,
    observe_producers,
    until_settled,
)
from tests.common.batches import CONTROL, TRANSACTIONAL, batch
from tests.common.definitions import Fields

pytestmark = pytest.mark.also_on("proxy")

CLASSIC = [(0, 0), (1, 1), (2, 2), (3, 3), (3, 4)]
"""Versions of AddPartitionsToTxn and EndTxn."""
MANY_PARTITIONS = 200


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        producer = Producer(session, name)
        assert producer.init(version) == 0
        assert (producer.epoch, producer.init(version), producer.epoch) == (0, 0, 1)
        for timeout_ms in (0, -1, 900_001, 900_000, 1):
            producer.init(version, timeout_ms=timeout_ms)
        producer.describe()
        if version >= 3:
            known = (producer.producer_id, producer.epoch)
            for _ in range(2):
                producer.init(version, expected=known)  # the second is a repeated request
            for expected in (
                (known[0], known[1] - 1),
                (known[0], known[1] + 5),
                (known[0] + 77_000, 0),
                (producer.producer_id, -1),
                (-1, 3),
            ):
                producer.init(version, expected=expected)
            other = Producer(session, f"{name}-other")
            other.init(version, expected=(12, 34))

    pair.compare(scenario)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("add", "end"), CLASSIC)
def test_classic(pair: Pair, name: str, add: int, end: int, commit: bool) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        producer = Producer(session, name)
        producer.init()
        producer.end(commit, end)
        producer.add([(name, 0)], add)
        producer.describe()
        producer.send(name, 0, 3)
        producer.send(name, 0, 2)
        observe_partition(session, name)
        observe_producers(session, name)
        producer.add([(name, 0), (name, 1)], add)
        producer.send(name, 1, 1)
        producer.end(not commit, end, epoch=producer.epoch + 1)
        producer.end(not commit, end, producer_id=producer.producer_id + 5000)
        producer.end(commit, end)
        producer.describe()
        observe_producers(session, name)
        producer.end(commit, end)
        producer.end(not commit, end)
        for partition in (0, 1):
            observe_partition(session, name, partition)
        producer.add([(name, 1)], add)
        producer.send(name, 1, 1)
        producer.end(not commit, end)
        observe_partition(session, name, 1)
        observe_partition(session, name, 1, 2)

    pair.compare(scenario)


def test_transactions_v2(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        producer = Producer(session, name)
        producer.init(5)
        for commit in (True, False, True):
            producer.send(name, 0, 2, V2_PRODUCE)
            producer.send(name, 0, 1, V2_PRODUCE)
            producer.send(name, 1, 1, V2_PRODUCE)
            producer.describe()
            observe_producers(session, name)
            before = producer.epoch
            assert producer.end(commit, V2_END)["producer_epoch"] == before + 1
            producer.describe()
            observe_producers(session, name)
            # Repeat the end, as after a lost response; send the other decision, an older epoch, a later epoch.
            for epoch in (before, before - 1, before + 2):
                for other in (commit, not commit):
                    producer.end(other, V2_END, epoch=epoch, adopt_epoch=False)
            observe_partition(session, name)
            # A late batch of the transaction that has ended.
            producer.send(name, 0, 1, V2_PRODUCE, epoch=before, sequence=3)
            producer.send(name, 1, 1, V2_PRODUCE, epoch=before, sequence=1)

    pair.compare(scenario)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("back", [0, 1])
def test_ends_without_an_open_transaction(pair: Pair, name: str, state: str, commit: bool, back: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        producer = Producer(session, name)
        producer.init(5)
        producer.init(5)
        if state != "Empty":
            producer.send(name, 0, 1, V2_PRODUCE)
            producer.end(state == "CompleteCommit", V2_END)
        assert producer.describe()["transaction_state"] == state
        producer.end(commit, V2_END, epoch=producer.epoch - back)
        producer.describe()
        producer.send(name, 0, 1, V2_PRODUCE)
        observe_partition(session, name)

    pair.compare(scenario)


def test_an_abort_comes_while_the_commit_completes(pair: Pair, name: str) -> None:
    """The next transaction is aborted, empty, as soon as the commit is answered, which writes its markers meanwhile
    (twmb/franz-go #1534: the coordinator says CONCURRENT_TRANSACTIONS until they are written).
    """

    def scenario(session: Session) -> None:
        session.topic(name, MANY_PARTITIONS)
        producer = Producer(session, name)
        producer.init()
        producer.add([(name, partition) for partition in range(MANY_PARTITIONS)])
        for partition in range(0, MANY_PARTITIONS, 10):
            producer.send(name, partition)
        for commit in (True, False, False):
            values: Fields = {
                "transactional_id": name,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "committed": commit,
            }
            response = until_settled(
                lambda values=values: session.call_unobserved("EndTxn", V2_END, values),
                lambda response: response["error_code"],
            )
            session.observe(f"EndTxn v{V2_END} {'commit' if commit else 'abort'}", response)
            producer.epoch = response["producer_epoch"]
        producer.wait_ended()
        observe_partition(session, name, 10)

    pair.compare(scenario)


@pytest.mark.parametrize("version", [3, 7, 9, 10, 11, 12])
def test_partitions_that_were_not_added(pair: Pair, name: str, version: int) -> None:
    """Before v12 the partition must have been added; from then on the write adds it."""

    def scenario(session: Session) -> None:
        session.topic(name, 3)
        producer = Producer(session, name)
        producer.init()
        producer.send(name, 0, 1, version)
        producer.add([(name, 1)])
        producer.send(name, 0, 1, version)
        producer.send(name, 1, 1, version)
        producer.send(name, 2, 1, version, producer_id=producer.producer_id + 9000)
        producer.send(name, 2, 1, version, epoch=producer.epoch + 1)
        producer.send(name, 2, 1, version, transactional_id=f"{name}-unknown")
        producer.send(name, 2, 1, version, transactional_id=None)
        producer.send(name, 1, 1, version, transactional=False)
        producer.send(name, 1, 1, version, transactional=False, transactional_id=None)
        producer.send(name, 2, 1, version, transactional=False, transactional_id=None)
        producer.send(name, 7, 1, version)
        producer.send(f"{name}-unknown", 0, 1, version)
        producer.describe()
        producer.end(True)
        producer.send(name, 1, 1, version)
        producer.describe()
        for partition in range(3):
            observe_partition(session, name, partition)

    pair.compare(scenario)


@pytest.mark.parametrize("version", [9, 11, 12])
def test_sequences_at_the_begin_of_a_transaction(pair: Pair, name: str, version: int) -> None:
    """A batch is refused because its partition is not added; the batches after it must not be appended first."""

    def scenario(session: Session) -> None:
        session.topic(name)
        producer = Producer(session, name)
        producer.init()
        producer.send(name, 0, 2, version, sequence=2)
        producer.send(name, 0, 2, version, sequence=0)
        producer.add([(name, 0)])
        for sequence in (4, 2, 0, 2, 6, 4, 0):
            producer.send(name, 0, 2, version, sequence=sequence)
        producer.end(True)
        # The next expected batch was refused: later batches must not be appended before it either.
        producer.send(name, 0, 1, version, sequence=1)
        producer.add([(name, 0)])
        for sequence in (8, 6, 0, 1, 6):
            producer.send(name, 0, 2, version, sequence=sequence)
        producer.end(True)
        observe_partition(session, name)

    pair.compare(scenario)


@pytest.mark.parametrize("version", range(6))
def test_add_partitions(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        producer = Producer(session, name)
        producer.init()
        unknown = f"{name}-unknown"
        producer.add([(name, 0), (name, 9)], version)
        producer.add([(name, 0), (unknown, 0)], version)
        producer.add(
            [(name, 0), ("__transaction_state", 0)], version if version < 4 else 3
        )  # not for clients
        producer.describe()
        if version >= 4:
            producer.add([(name, 0)], version, verify_only=True)
        producer.add([(name, 0)], version)
        if version >= 4:
            producer.add([(name, 0), (name, 1)], version, verify_only=True)
            producer.add([(name, 0)], version, verify_only=True, epoch=producer.epoch + 1)
            producer.add([(name, 0)], version, verify_only=True, producer_id=1 << 40)
        producer.add([(name, 1)], version, epoch=producer.epoch + 1)
        producer.add([(name, 1)], version, epoch=-1)
        producer.add([(name, 1)], version, producer_id=1 << 40)
        producer.describe()
        producer.transactional_id = unknown
        producer.add([(name, 1)], version)
        producer.transactional_id = ""
        producer.add([(name, 1)], version)
        producer.transactional_id = name
        producer.end(True)
        producer.describe()

    pair.compare(scenario)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets(pair: Pair, name: str, version: int, commit: bool) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        group = f"{name}-group"
        find_coordinator(session, group, GROUP)
        producer = Producer(session, name)
        producer.init()
        observe_committed(session, group, name)
        if version < V2_OFFSETS:
            producer.commit_offset(group, name, 3, version)
            producer.add_offsets(group, min(version, 4))
        producer.describe()
        producer.commit_offset(group, name, 5, version)
        producer.commit_offset(group, name, 6, version, partition=1)
        producer.commit_offset(group, name, 6, version, partition=7)
        producer.commit_offset(group, f"{name}-unknown", 6, version)
        producer.commit_offset(group, name, 7, version, epoch=producer.epoch + 1)
        producer.commit_offset("", name, 7, version)
        if version >= 3:
            producer.commit_offset(group, name, 7, version, generation=4, member="nobody")
            producer.commit_offset(f"{group}-2", name, 7, version, generation=4, member="nobody")
        producer.describe()
        for stable in (False, True):
            observe_committed(session, group, name, 2, stable=stable)
        producer.end(commit, V2_END if version >= V2_OFFSETS else 3)
        for stable in (False, True):
            observe_committed(session, group, name, 2, stable=stable)
        producer.describe()

    pair.compare(scenario)


@pytest.mark.parametrize("transactions_v2", [False, True])
def test_a_new_producer_ends_the_old_ones_transaction(pair: Pair, name: str, transactions_v2: bool) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        produce, end = (V2_PRODUCE, V2_END) if transactions_v2 else (9, 3)
        old = Producer(session, name)
        old.init()
        old.add([(name, 0)])
        old.send(name, 0, 2, produce)
        new = Producer(session, name)
        new.init()
        new.describe()
        old.send(name, 0, 1, produce)
        for commit in (True, False):
            old.end(commit, end)
        old.add([(name, 0)])
        old.commit_offset(f"{name}-g", name, 3, V2_OFFSETS if transactions_v2 else 3)
        new.add([(name, 0)])
        new.send(name, 0, 1, produce)
        new.end(True, end)
        observe_partition(session, name)
        observe_producers(session, name)
        for version in (3, 4):
            old.init(version, expected=(old.producer_id, old.epoch))

    pair.compare(scenario)


@pytest.mark.parametrize("version", [9, 11, 12])
def test_batches_that_no_client_sends(pair: Pair, name: str, version: int) -> None:
    """Transactional without a producer id; control batches; two producers or two kinds of batches in one request."""

    def send(session: Session, producer: Producer, label: str, *batches: bytes) -> None:
        rows = [{"index": index, "records": records} for index, records in enumerate(batches)]
        values: Fields = {
            "transactional_id": producer.transactional_id,
            "acks": -1,
            "timeout_ms": 15_000,
            "topic_data": [{"name": name, "partition_data": rows}],
        }
        response = session.call_unobserved("Produce", version, values)
        if isinstance(response, dict):
            response["responses"][0]["partition_responses"].sort(key=lambda row: row["index"])
        session.observe(label, response)

    def scenario(session: Session) -> None:
        session.topic(name, 2)
        producer = Producer(session, name)
        producer.init()
        known = producer.producer_id
        send(session, producer, "no producer id", batch(attributes=TRANSACTIONAL))
        producer.describe()
        marker = batch(1, attributes=TRANSACTIONAL | CONTROL, producer=(known, 0, 0))
        send(session, producer, "a control batch", marker)
        producer.describe()
        two = [batch(attributes=TRANSACTIONAL, producer=(known + one, 0, 0)) for one in range(2)]
        send(session, producer, "two producers", *two)
        epochs = [batch(attributes=TRANSACTIONAL, producer=(known, one, 0)) for one in range(2)]
        send(session, producer, "two epochs", *epochs)
        producer.describe()
        mixed = [
            batch(attributes=TRANSACTIONAL, producer=(known, 0, 0)),
            batch(producer=(-1, -1, -1)),
        ]
        send(session, producer, "one of each kind", *mixed)
        producer.describe()
        producer.add([(name, 0)])
        send(session, producer, "one of each kind, added", *mixed)
        producer.end(True)
        for partition in range(2):
            observe_partition(session, name, partition)

    pair.compare(scenario)
