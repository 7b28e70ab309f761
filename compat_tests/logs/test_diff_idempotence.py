"""Producer ids and sequences on both targets."""

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.differential import Pair, Session, produce_request
from tests.common.batches import GZIP, batch
from tests.common.definitions import Fields

pytestmark = pytest.mark.also_on("proxy")

MAX_SEQUENCE = 2**31 - 1
DUPLICATE_WINDOW = 5

# Chains of batches to one partition: (producer epoch, base sequence, record count, expected error).
CHAINS: dict[str, list[tuple[int, int, int, int]]] = {
    "in order": [(0, 0, 1, 0), (0, 1, 3, 0), (0, 4, 1, 0)],
    "duplicate of the last": [(0, 0, 3, 0), (0, 0, 3, 0), (0, 3, 1, 0)],
    "duplicates of the last five": [
        *((0, n, 1, 0) for n in range(7)),
        *((0, n, 1, 0) for n in (6, 5, 4, 3, 2)),
    ],
    "older than the last five": [
        *((0, n, 1, 0) for n in range(7)),
        (0, 1, 1, 45),
        (0, 0, 1, 45),
        (0, 7, 1, 0),
    ],
    "a gap": [(0, 0, 1, 0), (0, 2, 1, 45), (0, 1, 1, 0), (0, 2, 1, 0)],
    "part of an earlier batch": [(0, 0, 4, 0), (0, 0, 2, 45), (0, 2, 2, 45), (0, 0, 4, 0), (0, 3, 2, 45)],
    "longer than the earlier batch": [(0, 0, 2, 0), (0, 0, 3, 45)],
    "starts late": [(0, 9, 1, 0), (0, 10, 1, 0), (0, 0, 1, 45)],
    "wraps around": [
        (0, MAX_SEQUENCE - 1, 1, 0),
        (0, MAX_SEQUENCE, 1, 0),
        (0, 0, 1, 0),
        (0, MAX_SEQUENCE, 1, 0),
    ],
    "wraps inside a batch": [
        (0, MAX_SEQUENCE - 1, 4, 0),
        (0, 2, 1, 0),
        (0, MAX_SEQUENCE - 1, 4, 0),
        (0, 2, 1, 0),
    ],
    "wraps early": [(0, MAX_SEQUENCE - 1, 1, 0), (0, 0, 1, 45)],
    "a new epoch": [(0, 0, 2, 0), (1, 0, 1, 0), (1, 1, 1, 0), (1, 0, 1, 0)],
    "a new epoch that does not start at 0": [(0, 0, 2, 0), (1, 2, 1, 45), (1, 0, 1, 0)],
    "an old epoch": [(3, 0, 1, 0), (2, 1, 1, 47), (2, 0, 1, 47), (3, 1, 1, 0)],
    "the largest epoch": [(32767, 0, 1, 0), (32767, 1, 1, 0)],
}


def send(session: Session, name: str, producer: tuple[int, int, int], count: int, version: int = 9) -> Any:
    """Produce `count` records of a producer (id, epoch, base sequence); the partition's row, observed."""
    response = session.call_unobserved(
        "Produce", version, produce_request(name, batch(count, producer=producer))
    )
    row = response["responses"][0]["partition_responses"][0]
    session.observe(f"{producer[1:]} x {count}", row)
    return row


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("version", [3, 9])
def test_sequences(pair: Pair, name: str, chain: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        for epoch, sequence, count, error in CHAINS[chain]:
            row = send(session, name, (4000, epoch, sequence), count, version)
            assert row["error_code"] == error, (epoch, sequence, count, row)
        rows = [{"topic_id": topic_id, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}]
        session.call("Fetch", 16, {"max_wait_ms": 0, "topics": rows})

    pair.compare(scenario)


def test_producers_and_partitions_are_independent(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        for partition in (0, 1):
            for producer in (11, 12):
                for sequence in (0, 1, 1, 3):
                    records = batch(1, producer=(producer, 0, sequence), codec=GZIP)
                    session.observe(
                        f"{partition} {producer} {sequence}",
                        session.produce(name, records, partition=partition),
                    )

    pair.compare(scenario)


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        session.wait_for_producer_ids()
        first = session.call(
            "InitProducerId", version, {"transactional_id": None, "transaction_timeout_ms": 60000}
        )
        assert (first["error_code"], first["producer_epoch"]) == (0, 0)
        second = session.call(
            "InitProducerId", version, {"transactional_id": None, "transaction_timeout_ms": -1}
        )
        assert second["producer_id"] == first["producer_id"] + 1
        empty = session.call(
            "InitProducerId", version, {"transactional_id": "", "transaction_timeout_ms": 1000}
        )
        assert empty["error_code"] == 42
        if version >= 3:
            for producer_id, epoch in (
                (first["producer_id"], 0),
                (first["producer_id"], 7),
                (-1, 3),
                (5, -1),
            ):
                values: Fields = {
                    "transactional_id": None,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                }
                session.call("InitProducerId", version, values, f"with epoch {epoch}")

    pair.compare(scenario)


def test_producer_ids_are_unique(own_broker: Callable[..., Broker]) -> None:
    """Across connections, and after a SIGKILL too."""
    seen: list[int] = []
    broker = own_broker()
    for _ in range(2):
        for _ in range(2):
            session = Session(broker.bootstrap)
            session.wait_for_producer_ids()
            for _ in range(40):
                response = session.call_unobserved("InitProducerId", 4, {"transactional_id": None})
                assert response["error_code"] == 0
                seen.append(response["producer_id"])
            session.close()
        broker.kill()
        broker.start()
    assert len(set(seen)) == len(seen)
    assert seen == sorted(seen)
