"""Producers whose transactions never time out (KIP-939), as far as Kafka 4.4 has them, on both targets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.brokers import UNDISTURBED, UNDISTURBED_KAFKA, Broker, checked, make_broker
from compat_tests.differential import Pair, Session
from compat_tests.every_version.announced import announce_as_kafka, ranges
from compat_tests.on_demand import OnDemand
from tests.common.batches import TRANSACTIONAL, batch
from tests.common.definitions import Fields, api_key, versions_of
from tests.common.recorded.recorder import Recorder

pytestmark = pytest.mark.slow
VERSION = 6
SETTINGS = {
    **UNDISTURBED,
    "unstable.api.versions.enable": "true",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
TWO_PHASE_COMMIT = "transaction.two.phase.commit.enable"
CONCURRENT = (14, 15, 16, 51)


@pytest.fixture(scope="module", params=[True, False], ids=["enabled", "disabled"])
def own_brokers(request: pytest.FixtureRequest) -> Iterator[OnDemand[Broker]]:
    """Both targets, with two-phase commit or without."""
    settings = {**SETTINGS, TWO_PHASE_COMMIT: str(request.param).lower()}
    with OnDemand(lambda target: make_broker(target, {**settings, **UNDISTURBED_KAFKA})) as found:
        yield found


@pytest.fixture
def pair(answers: Recorder, own_brokers: OnDemand[Broker]) -> Iterator[Pair]:
    with checked(own_brokers["oncelog"]):
        yield Pair(answers, lambda target: own_brokers[target].bootstrap)


@pytest.mark.parametrize("version", versions_of("ApiVersions"))
def test_what_is_announced(pair: Pair, version: int) -> None:
    announce_as_kafka(pair, version)


def initialise(session: Session, name: str, **changed: object) -> Fields:
    """The response to InitProducerId, once the coordinator is there."""
    request = {"transactional_id": name, "transaction_timeout_ms": 0, **changed}
    while True:
        response = session.call_unobserved("InitProducerId", VERSION, request)
        if response["error_code"] not in CONCURRENT:
            return dict(response)
        session.call_unobserved("FindCoordinator", 3, {"key_type": 1, "key": name})


def test_requests(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.observe("announced", ranges(session.bootstrap)[api_key("InitProducerId")])
        cases: dict[str, Fields] = {
            "two phases": {"enable2_pc": True},
            "two phases, other time-outs": {"enable2_pc": True, "transaction_timeout_ms": -5},
            "one phase": {"transaction_timeout_ms": 60_000},
            "no time-out": {},
            "kept": {"transaction_timeout_ms": 60_000, "keep_prepared_txn": True},
            "kept, two phases": {"enable2_pc": True, "keep_prepared_txn": True},
            "no id": {"transactional_id": None, "enable2_pc": True, "keep_prepared_txn": True},
            "empty id": {"transactional_id": "", "enable2_pc": True},
        }
        for note, changed in cases.items():
            response = initialise(session, name, **changed)
            response["producer_id"] = response["producer_id"] >= 0
            session.observe(note, response)

    pair.compare(scenario)


def begin(session: Session, name: str, **changed: object) -> tuple[Fields, tuple[int, int]]:
    """Begin a transaction; return the response to InitProducerId, and who the producer is."""
    who = initialise(session, name, **changed)
    producer = (who["producer_id"], who["producer_epoch"])
    if who["error_code"]:
        return who, producer
    records = batch(1, attributes=TRANSACTIONAL, producer=(*producer, 0))
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]}]
    request = {"transactional_id": name, "acks": -1, "timeout_ms": 9000, "topic_data": data}
    while True:
        [topic] = session.call_unobserved("Produce", 12, request)["responses"]
        if topic["partition_responses"][0]["error_code"] not in CONCURRENT:
            return who, producer


def state_of(session: Session, name: str) -> Fields:
    described = session.call_unobserved("DescribeTransactions", 0, {"transactional_ids": [name]})
    return dict(described["transaction_states"][0])


def test_a_transaction_that_never_times_out(pair: Pair, name: str) -> None:
    """A search for transactions whose time is over finds a younger one, and not this one."""
    other = f"{name}-other"

    def scenario(session: Session) -> None:
        for topic in (name, other):
            session.topic(topic)
        who, producer = begin(session, name, enable2_pc=True)
        if who["error_code"]:
            session.observe("refused", who)
            return
        begin(session, other, transaction_timeout_ms=1)
        while state_of(session, other)["transaction_state"] != "CompleteAbort":
            pass
        state = state_of(session, name)
        session.observe("state", (state["transaction_state"], state["transaction_timeout_ms"]))
        names = {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1]}
        ended = session.call_unobserved("EndTxn", 5, {**names, "committed": True})
        session.observe("ended", ended["error_code"])

    pair.compare(scenario)
