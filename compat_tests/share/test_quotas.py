"""Client quotas on ShareFetch, on both targets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.conftest import OwnBrokers
from compat_tests.differential import Session
from compat_tests.security.test_quotas import LIMIT, SLACK_MS, Quotas
from compat_tests.share.readers import DEADLINE_MS, Reader, set_group_config, share_topic
from compat_tests.share.stock_reader import read_until, reading, wait_until_done
from tests.common.batches import batch, now_ms, record

pytestmark = pytest.mark.slow

SHORT = {
    "quota.window.num": "3",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
}


@contextlib.contextmanager
def limited(session: Session, client_id: str, rate: float) -> Iterator[None]:
    with contextlib.closing(Quotas(session)) as quotas:
        quotas.alter({"client-id": client_id}, {"consumer_byte_rate": rate})
        yield


def produce(session: Session, name: str, count: int, size: int) -> None:
    for _ in range(count):
        assert session.produce(name, batch([record(value=bytes(size))]))["error_code"] == 0


def test_a_throttled_share_fetch_is_empty(bootstrap: str, name: str) -> None:
    """Acquired records stay acquired, until the session ends."""
    session = Session(bootstrap)
    topic_id = share_topic(session, name)
    produce(session, name, 4, 6000)
    one, other = (Reader(session, topic_id, f"{member}-{name}", name) for member in ("one", "other"))
    with limited(session, one.member_id, LIMIT):
        assert one.begin(max_bytes=100) == [(0, 0, 1)]
        second: Any = one.send(one.body(max_bytes=100))
        assert (second["error_code"], second["responses"]) == (0, [])
        assert second["throttle_time_ms"] == pytest.approx(2200, abs=SLACK_MS + 200)
        assert other.begin(most=1) == [(2, 2, 1)]
        assert other.fetch() == [(3, 3, 1)]
        one.leave()
        found: dict[int, int] = {}
        deadline = now_ms() + DEADLINE_MS
        while found.keys() != {0, 1}:
            for first, last, count in other.fetch(wait_ms=500):
                found.update(dict.fromkeys(range(first, last + 1), count))
            assert now_ms() < deadline, found
        assert set(found.values()) == {2}
    session.end()


def test_a_stock_consumer_reads_all_within_its_quota(own_broker: OwnBrokers, name: str) -> None:
    """Larger records, for which it would be throttled more often, reach the delivery limit unread."""
    session = Session(own_broker(SHORT).bootstrap)
    session.topic(name)
    set_group_config(session, name, share_auto_offset_reset="earliest", share_delivery_count_limit="10")
    produce(session, name, 10, 3000)
    client_id = f"client-{name}"
    with (
        limited(session, client_id, 8000),
        reading(session.bootstrap, name, client_id=client_id, fetch_max_bytes=9000) as consumer,
    ):
        seen = read_until(consumer, lambda seen: len({offset for offset, _ in seen}) == 10)
    assert {offset for offset, _ in seen} == set(range(10))
    wait_until_done(session, name)
    session.end()
