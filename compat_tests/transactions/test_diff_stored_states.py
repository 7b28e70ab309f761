"""States that the coordinators load from their logs: epochs nearly exhausted, a crash between two writes.

All records are written before a single restart of both targets. Each case has its own transactional id, topic and
group.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from compat_tests.brokers import Broker, make_broker
from compat_tests.differential import LOADING, Pair, Session
from compat_tests.on_demand import OnDemand
from compat_tests.transactions.conftest import OWN_PROPERTIES
from compat_tests.transactions.stored import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
    partition_of,
    write,
)
from compat_tests.transactions.wire import (
    GROUP,
    V2_END,
    V2_OFFSETS,
    V2_PRODUCE,
    Producer,
    find_coordinator,
    observe_committed,
    observe_topic,
)
from tests.common.batches import WAIT_MS, now_ms
from tests.common.recorded.recorder import Recorder

pytestmark = pytest.mark.slow

EPOCH_MAX = 32_767
"""No producer gets it: the highest epoch of a producer is one less."""
LAST = EPOCH_MAX - 1
MINUTE_MS = 60_000
EXPIRES_MS = 7 * 24 * 3_600_000
"""The default of transactional.id.expiration.ms."""
Scenario = Callable[[Session, Producer], None]


class Case(NamedTuple):
    """The stored state of a transactional id, except for its producer id."""

    epoch: int
    state: int = EMPTY
    version: int = 1
    has_data: bool = False
    """With records of epoch 0 in both partitions of its topic, and an offset of its group."""
    rotates: bool = False
    """Decided with the last epoch, so that a new producer id follows."""
    client_version: int = 0
    timeout_ms: int = MINUTE_MS
    unused_ms: int = 0


CASES = {
    "v2": Case(LAST - 2),
    "v2-taken-over": Case(LAST),
    "v2-times-out": Case(LAST, timeout_ms=1_000),
    "classic": Case(LAST - 1),
    "classic-ends": Case(LAST, COMPLETE_COMMIT, version=0),
    "classic-taken-over": Case(LAST - 1),
    "expected": Case(LAST),
    "behind": Case(LAST, COMPLETE_ABORT),
    "beyond": Case(EPOCH_MAX, COMPLETE_ABORT),
    "beyond-open": Case(EPOCH_MAX, client_version=2),
    "commit-v2": Case(1, PREPARE_COMMIT, has_data=True, client_version=2),
    "abort-v2": Case(1, PREPARE_ABORT, has_data=True, client_version=2),
    "commit-classic": Case(0, PREPARE_COMMIT, has_data=True),
    "abort-classic": Case(0, PREPARE_ABORT, has_data=True, version=0),
    "commit-rotates": Case(EPOCH_MAX, PREPARE_COMMIT, has_data=True, rotates=True, client_version=2),
    "abort-empty": Case(1, PREPARE_ABORT, client_version=2),
    "open-too-long": Case(0, ONGOING, has_data=True, timeout_ms=1_000),
    "expired": Case(3, unused_ms=EXPIRES_MS + 1),
    "expired-committed": Case(3, COMPLETE_COMMIT, unused_ms=EXPIRES_MS + 1),
    "nearly-expired": Case(3, COMPLETE_ABORT, unused_ms=EXPIRES_MS - 10 * MINUTE_MS),
    "tombstone": Case(0),
    "from-the-future": Case(0),
}
KAFKAS_ERROR = (r"InitProducerId .*error_code: -1 != 90",)
"""If an id's epochs are exhausted and a producer continues from a wrong epoch, Kafka fails with UNKNOWN_SERVER_ERROR;
oncelog returns PRODUCER_FENCED, as it does for any other epoch."""
DECIDED = [name for name, case in CASES.items() if case.state in (PREPARE_COMMIT, PREPARE_ABORT)]
known_ids: dict[tuple[str, str], int] = {}
"""By bootstrap address and case: the transactional id's producer id."""


def store(session: Session, name: str, case: Case) -> None:
    session.topic(name, 2)
    producer = Producer(session, name)
    producer.init()
    partitions = []
    if case.has_data:
        find_coordinator(session, name, GROUP)
        for partition in (0, 1):
            assert producer.send(name, partition, 2, V2_PRODUCE)["error_code"] == 0
            partitions.append((name, partition))
        assert producer.commit_offset(name, name, 7, V2_OFFSETS) == 0
        partitions.append(("__consumer_offsets", partition_of(name)))
    next_id = -1
    if case.rotates:
        next_id = session.call_unobserved("InitProducerId", 4, {"transactional_id": None})["producer_id"]
    now = now_ms()
    value = TransactionState(
        producer.producer_id,
        case.epoch,
        case.state,
        partitions,
        case.timeout_ms,
        -1 if case.state == EMPTY else now - MINUTE_MS,
        now - case.unused_ms,
        producer.producer_id,
        next_id,
        case.client_version,
    )
    write(session, name, value.encode(case.version))
    known_ids[session.bootstrap, name] = producer.producer_id
    if name == "tombstone":
        write(session, name, None)
    elif name == "from-the-future":
        write(session, name, b"\0\7" + value.encode(0)[2:])
        write(session, name, value.encode(0), key_version=9)


def wait_until_loaded(session: Session) -> None:
    deadline = now_ms() + WAIT_MS
    asked = {"transactional_ids": list(CASES)}
    while True:
        states = session.call_unobserved("DescribeTransactions", 0, asked)["transaction_states"]
        if not {row["error_code"] for row in states} & set(LOADING):
            return
        assert now_ms() < deadline, states


@pytest.fixture(scope="module")
def restarted() -> Iterator[OnDemand[Broker]]:
    """Brokers that have loaded the states."""

    @contextlib.contextmanager
    def make(target: str) -> Iterator[Broker]:
        with make_broker(target, OWN_PROPERTIES) as broker:
            session = Session(broker.bootstrap)
            for name, case in CASES.items():
                store(session, name, case)
            session.end()
            broker.restart()
            session = Session(broker.bootstrap)
            wait_until_loaded(session)
            session.end()
            yield broker

    with OnDemand(make) as found:
        yield found


@pytest.fixture
def restarted_pair(answers: Recorder, restarted: OnDemand[Broker]) -> Pair:
    return Pair(answers, lambda target: restarted[target].bootstrap)


def compare(pair: Pair, name: str, scenario: Scenario, known: tuple[str, ...] = ()) -> None:
    def run(session: Session) -> None:
        producer = Producer(session, name)
        producer.producer_id = known_ids[session.bootstrap, name]
        producer.epoch = CASES[name].epoch
        scenario(session, producer)

    pair.compare(run, known=known)


def test_an_end_with_the_last_epoch_returns_a_new_producer_id(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        for commit in (True, False, True, True, False):
            before, epoch = producer.producer_id, producer.epoch
            producer.send("v2", 0, 1, V2_PRODUCE)
            producer.describe()
            producer.end(commit, V2_END)
            producer.describe()
            for other in (commit, not commit):
                for difference in (0, -1):
                    producer.end(
                        other, V2_END, producer_id=before, epoch=epoch + difference, adopt_epoch=False
                    )
            producer.send("v2", 0, 1, V2_PRODUCE, producer_id=before, epoch=epoch, sequence=1)
        assert producer.epoch == 2  # after 32,764, 32,765 and 32,766
        assert producer.producer_id != known_ids[session.bootstrap, "v2"]
        observe_topic(session, "v2")

    compare(restarted_pair, "v2", scenario)


def test_a_new_producer_ends_the_last_epochs_transaction(restarted_pair: Pair) -> None:
    def scenario(session: Session, old: Producer) -> None:
        old.send("v2-taken-over", 0, 2, V2_PRODUCE)
        new = Producer(session, "v2-taken-over")
        new.init()
        assert new.producer_id != old.producer_id
        new.describe()
        observe_topic(session, "v2-taken-over")
        old.send("v2-taken-over", 0, 1, V2_PRODUCE)
        for commit in (True, False):
            old.end(commit, V2_END, adopt_epoch=False)
        for epoch in (LAST, LAST - 1, EPOCH_MAX):
            old.init(4, expected=(known_ids[session.bootstrap, "v2-taken-over"], epoch))
        new.send("v2-taken-over", 0, 1, V2_PRODUCE)
        new.end(True, V2_END)
        observe_topic(session, "v2-taken-over")

    compare(restarted_pair, "v2-taken-over", scenario)


def test_the_last_epochs_transaction_times_out(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        producer.send("v2-times-out", 1, 1, V2_PRODUCE)
        producer.wait_for("CompleteAbort")
        producer.describe()
        observe_topic(session, "v2-times-out")
        producer.send("v2-times-out", 1, 1, V2_PRODUCE)
        for commit in (True, False):
            producer.end(commit, V2_END, adopt_epoch=False)
        for _ in range(2):
            producer.init(4, expected=(known_ids[session.bootstrap, "v2-times-out"], LAST))
        producer.describe()

    compare(restarted_pair, "v2-times-out", scenario)


def test_initialisations_exhaust_the_classic_epochs(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        for _ in range(3):
            producer.init()
            producer.add([("classic", 0)])
            producer.send("classic", 0, 2)
            producer.end(True)
            producer.describe()
        assert (producer.epoch, producer.producer_id != known_ids[session.bootstrap, "classic"]) == (1, True)
        for epoch in (LAST, LAST - 1):
            producer.init(4, expected=(known_ids[session.bootstrap, "classic"], epoch))
        observe_topic(session, "classic")

    compare(restarted_pair, "classic", scenario)


def test_classic_ends_keep_the_last_epoch(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        producer.describe()
        producer.end(True)
        producer.end(False)
        for commit in (False, True):
            producer.add([("classic-ends", 0)])
            producer.send("classic-ends", 0, 2)
            producer.end(commit)
        producer.describe()
        observe_topic(session, "classic-ends")

    compare(restarted_pair, "classic-ends", scenario)


def test_fencing_uses_the_last_epoch(restarted_pair: Pair) -> None:
    def scenario(session: Session, old: Producer) -> None:
        old.add([("classic-taken-over", 0)])
        old.send("classic-taken-over", 0, 2)
        new = Producer(session, "classic-taken-over")
        new.init()
        new.describe()
        old.end(True)
        observe_topic(session, "classic-taken-over")
        new.add([("classic-taken-over", 0)])
        new.send("classic-taken-over", 0, 2)
        new.end(True)
        observe_topic(session, "classic-taken-over")

    compare(restarted_pair, "classic-taken-over", scenario)


def test_continuing_from_the_last_epoch_may_be_repeated(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        known = producer.producer_id
        for epoch in (EPOCH_MAX, LAST, LAST, LAST - 1, EPOCH_MAX):
            producer.init(4, expected=(known, epoch))
        producer.init(4, expected=(producer.producer_id, producer.epoch))
        producer.init(4, expected=(known, LAST))
        producer.describe()

    compare(restarted_pair, "expected", scenario, KAFKAS_ERROR)


def test_continuing_from_an_older_epoch(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        for epoch in (LAST - 1, 0):
            producer.init(4, expected=(producer.producer_id, epoch))
        producer.describe()

    compare(restarted_pair, "behind", scenario, KAFKAS_ERROR)


def test_the_epoch_that_no_producer_gets(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        producer.init(4, expected=(producer.producer_id, LAST))
        producer.init(4, expected=(producer.producer_id, EPOCH_MAX))
        producer.describe()

    compare(restarted_pair, "beyond", scenario, KAFKAS_ERROR)

    def ends(session: Session, producer: Producer) -> None:
        producer.send("beyond-open", 0, 1, V2_PRODUCE)
        producer.end(False, V2_END)
        producer.describe()
        observe_topic(session, "beyond-open")

    compare(restarted_pair, "beyond-open", ends)


@pytest.mark.parametrize("name", DECIDED)
def test_a_decided_transaction_is_finished(restarted_pair: Pair, name: str) -> None:
    """The process died after it stored the decision and before it wrote any marker."""
    commits = CASES[name].state == PREPARE_COMMIT
    is_v2 = CASES[name].client_version == 2
    epoch = CASES[name].epoch - is_v2

    def scenario(session: Session, producer: Producer) -> None:
        producer.wait_ended()
        producer.describe()
        observe_topic(session, name)
        for stable in (False, True):
            observe_committed(session, name, name, stable=stable)
        for commit in (commits, not commits):
            producer.end(commit, V2_END if is_v2 else 3, epoch=epoch, adopt_epoch=False)
        producer.init()
        producer.send(name, 0, 1, V2_PRODUCE)
        producer.end(True, V2_END)
        observe_topic(session, name)

    compare(restarted_pair, name, scenario)


def test_an_old_open_transaction_is_aborted(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        producer.wait_for("CompleteAbort")
        producer.describe()
        observe_topic(session, "open-too-long")
        observe_committed(session, "open-too-long", "open-too-long", stable=True)
        producer.end(True, V2_END, adopt_epoch=False)
        producer.end(True)

    compare(restarted_pair, "open-too-long", scenario)


def test_tombstones_and_unknown_versions(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        producer.describe()
        producer.add([(producer.transactional_id, 0)])
        producer.init(4, expected=(producer.producer_id, 0))
        producer.describe()

    for name in ("tombstone", "from-the-future"):
        compare(restarted_pair, name, scenario)


def test_unused_ids_expire(restarted_pair: Pair) -> None:
    def scenario(session: Session, producer: Producer) -> None:
        if producer.transactional_id.startswith("expired"):
            producer.wait_for("")
        producer.describe()
        producer.add([(producer.transactional_id, 0)])
        producer.end(False, V2_END)
        producer.init(4, expected=(producer.producer_id, producer.epoch))
        producer.describe()

    for name in ("expired", "expired-committed", "nearly-expired"):
        compare(restarted_pair, name, scenario)
