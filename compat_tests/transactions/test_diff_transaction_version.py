"""``transaction.version`` down and up again: which records are written, and what is refused."""

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import make_broker
from compat_tests.definitions import Fields
from compat_tests.differential import Pair, Session
from compat_tests.real_kafka import RealPartMissing, require
from compat_tests.transactions.wire import V2_END, V2_PRODUCE, Producer, find_coordinator, producers, see

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@pytest.fixture(scope="module")
def own_pair() -> Iterator[Pair]:
    """Brokers whose features these tests may change."""
    with contextlib.ExitStack() as stack:
        try:
            targets = {name: stack.enter_context(make_broker(name)) for name in ("kafka", "oncelog")}
        except RealPartMissing as missing:
            require(str(missing))
        yield Pair(targets["kafka"].bootstrap, targets["oncelog"].bootstrap)


def set_level(session: Session, level: int, kind: int) -> None:
    rows = [{"feature": "transaction.version", "max_version_level": level, "upgrade_type": kind}]
    values: Fields = {"feature_updates": rows, "timeout_ms": 15_000}
    answer = session.call("UpdateFeatures", 1, values, str(level))
    if answer["error_code"]:
        return
    while True:
        known = session.quiet("ApiVersions", 3, {"client_software_name": "t", "client_software_version": "1"})
        found = {row["name"]: row["max_version_level"] for row in known["finalized_features"]}
        if found.get("transaction.version", 0) == level:
            return


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 0, 2])
def test_levels(own_pair: Pair, level: int) -> None:
    name = f"level-{level}"

    def scenario(session: Session) -> None:
        session.topic(name, 2)
        before = Producer(session, f"{name}-before")
        before.init()
        before.send(name, 1, 1, V2_PRODUCE)
        set_level(session, 3, UPGRADE)
        set_level(session, level, UPGRADE if level == 2 else SAFE_DOWNGRADE)
        before.end(True)
        producer = Producer(session, f"{name}-after")
        producer.init()
        producer.add([(name, 0)])
        producer.send(name, 0, 1, 9)
        producer.describe()
        new = Producer(session, f"{name}-after")  # fences it in the way of the level
        new.init()
        producers(session, name)
        new.add([(name, 0)])
        new.send(name, 0, 1, 9)
        new.end(True)
        new.describe()
        if level:
            new.send(name, 0, 1, V2_PRODUCE)
            new.end(True, V2_END)
            new.describe()
        for partition in range(2):
            see(session, name, partition)
        find_coordinator(session, name)
        set_level(session, 2, UPGRADE)
        new.send(name, 1, 1, V2_PRODUCE)
        new.end(False, V2_END)
        new.describe()
        see(session, name, 1)

    own_pair.compare(scenario)
