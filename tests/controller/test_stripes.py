"""New partitions' replicas: spread over brokers and racks, those that do not serve last."""

from __future__ import annotations

import pathlib
import random
from collections import Counter
from typing import Any

import pytest

from oncelog.broker.metadata.image import MetadataImage
from oncelog.broker.metadata.placement import default_directory, partition_record, place
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import RegisterBrokerRecord
from tests.harness.kafka_oracle import Oracle

UNASSIGNED, MIGRATING = bytes(15) + b"\x01", bytes(16)


def brokers(**racks: list[int]) -> MetadataImage:
    """An image with these brokers, which serve; the ids by rack."""
    image = MetadataImage()
    for rack, broker_ids in racks.items():
        for broker_id in broker_ids:
            image.brokers[broker_id] = RegisterBrokerRecord(
                broker_id,
                rack=None if rack == "none" else rack,
                fenced=False,
                log_dirs=[bytes([broker_id]) * 16],
            )
    return image


@pytest.fixture(params=range(5))
def rng(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


def test_one_broker_takes_all_and_no_chance_is_asked() -> None:
    rng = random.Random(1)
    before = rng.getstate()
    assert place(brokers(none=[5]), 3, 1, rng) == [[5], [5], [5]]
    assert rng.getstate() == before


def test_leaders_go_round(rng: random.Random) -> None:
    placed = place(brokers(none=[1, 2, 3]), 300, 2, rng)
    assert Counter(leader for leader, _ in placed) == {1: 100, 2: 100, 3: 100}
    assert all(leader != follower for leader, follower in placed)
    for at in range(0, 300, 3):
        assert {leader for leader, _ in placed[at : at + 3]} == {1, 2, 3}


def test_not_always_the_same_brokers_are_together() -> None:
    pairs = Counter(map(tuple, place(brokers(none=[1, 2, 3]), 300, 2, random.Random(1))))
    assert len(pairs) == 6
    assert min(pairs.values()) > 25


def test_the_first_partition_begins_anywhere() -> None:
    firsts = {place(brokers(none=[1, 2, 3]), 1, 1, random.Random(seed))[0][0] for seed in range(20)}
    assert firsts == {1, 2, 3}


def test_replicas_are_on_as_many_racks_as_there_are(rng: random.Random) -> None:
    image = brokers(a=[1, 2], b=[3, 4], c=[5, 6])
    rack_of = {one.broker_id: one.rack for one in image.brokers.values()}
    placed = place(image, 60, 3, rng)
    for replicas in placed:
        assert {rack_of[one] for one in replicas} == {"a", "b", "c"}
    assert Counter(rack_of[replicas[0]] for replicas in placed) == {"a": 20, "b": 20, "c": 20}
    for replicas in place(image, 60, 4, rng):
        assert len({rack_of[one] for one in replicas}) == 3
        assert len(set(replicas)) == 4


def test_more_replicas_than_racks_come_back_to_the_leader_s_rack(rng: random.Random) -> None:
    image = brokers(a=[1, 2, 3])
    image.brokers[4] = RegisterBrokerRecord(4, fenced=False, log_dirs=[b"4" * 16])
    for replicas in place(image, 12, 4, rng):
        assert sorted(replicas) == [1, 2, 3, 4]


def test_fenced_brokers_lead_nothing_and_come_last_in_their_rack(rng: random.Random) -> None:
    image = brokers(none=[1, 2, 3, 4])
    for broker_id in (1, 4):
        image.brokers[broker_id].fenced = True
    for replicas in place(image, 50, 3, rng):
        assert set(replicas[:2]) == {2, 3}
        assert replicas[2] in (1, 4)
    image = brokers(a=[1, 2], b=[3])
    image.brokers[3].fenced = True
    for replicas in place(image, 10, 2, rng):
        assert replicas[0] in (1, 2)
        assert replicas[1] == 3, "another rack is better than a broker that serves"


def test_who_shuts_down_or_has_no_room_gets_nothing(rng: random.Random) -> None:
    image = brokers(none=[1, 2, 3, 4])
    image.brokers[1].in_controlled_shutdown = True
    image.brokers[2].cordoned_log_dirs = image.brokers[2].log_dirs
    assert {one for replicas in place(image, 20, 2, rng) for one in replicas} == {3, 4}
    with pytest.raises(KafkaError) as refused:
        place(image, 1, 3, rng)
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some "
        "brokers have all their log directories cordoned.",
    )


def test_nobody_serves(rng: random.Random) -> None:
    image = brokers(none=[1, 2])
    for one in image.brokers.values():
        one.fenced = True
    with pytest.raises(KafkaError) as refused:
        place(image, 1, 1, rng)
    assert refused.value.message == (
        "All brokers are currently fenced, or have all their log directories cordoned."
    )


def test_a_new_partition_is_in_sync_where_its_brokers_serve() -> None:
    image = brokers(none=[1, 2, 3])
    image.brokers[1].fenced = True
    image.brokers[3].log_dirs = [b"x" * 16, b"y" * 16]
    record = partition_record(image, b"t" * 16, 0, [1, 2, 3])
    assert (record.isr, record.leader, record.directories) == (
        [2, 3],
        2,
        [bytes([1]) * 16, bytes([2]) * 16, UNASSIGNED],
    )
    image.brokers[3].log_dirs = []
    assert default_directory(image, 3) == MIGRATING
    assert default_directory(image, 9) == UNASSIGNED


class JavaRandom(random.Random):
    """``java.util.Random``, for numbers below a limit and for shuffling."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._state = (seed ^ 0x5DEECE66D) & (1 << 48) - 1

    def _next(self, bits: int) -> int:
        self._state = (self._state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        return self._state >> (48 - bits)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        limit = start
        if limit & -limit == limit:
            return limit * self._next(31) >> 31
        while True:
            bits = self._next(31)
            if bits - bits % limit + limit - 1 < 1 << 31:
                return bits % limit

    def shuffle(self, x: Any) -> None:
        for at in range(len(x) - 1, 0, -1):
            other = self.randrange(at + 1)
            x[at], x[other] = x[other], x[at]


@pytest.mark.slow
def test_kafkas_placer_places_alike(oracle: Oracle) -> None:
    """The same chance, the same replicas (PlacerOracle.java)."""
    chance = random.Random(1)
    lines, expected = [], []
    for seed in range(300):
        image = brokers(none=list(range(1, chance.randint(2, 9))))
        for one in image.brokers.values():
            one.rack = chance.choice((None, "a", "b", "c")) if seed % 3 else None
            one.fenced = chance.random() < 0.2
        count, factor = chance.randint(1, 20), chance.randint(1, 5)
        shown = (f"{one.broker_id}:{one.rack or '-'}:{int(one.fenced)}" for one in image.brokers.values())
        lines.append(f"{seed} {count} {factor} {' '.join(shown)}")
        try:
            placed = place(image, count, factor, JavaRandom(seed))
            expected.append(" ".join(",".join(map(str, replicas)) for replicas in placed))
        except KafkaError as refused:
            expected.append(f"refused {refused.message}")
    told = oracle(pathlib.Path(__file__).with_name("PlacerOracle.java"), "\n".join(lines).encode())
    assert told.decode().splitlines() == expected
