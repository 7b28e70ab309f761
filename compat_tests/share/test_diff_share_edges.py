"""ShareFetch and ShareAcknowledge at the edges, on both targets: values that no client sends, a log start that moves
under what is in flight, locks that end over partly acknowledged batches. The responses are the same, field by field.
"""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.conftest import OwnBrokers
from compat_tests.differential import Pair, Session
from compat_tests.share.readers import DEADLINE_MS, Reader, share_topic
from tests.common.batches import batch, now_ms

pytestmark = pytest.mark.slow

ACCEPT, RELEASE, REJECT, RENEW = ([kind] for kind in range(1, 5))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -5),
        ("max_records", -1),
        ("max_bytes", 0),
        ("min_bytes", -1),
        ("max_wait_ms", -1),
    ],
)
def test_values_that_no_client_sends(pair: Pair, name: str, field: str, value: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, 3, 3, 3)
        one, other = (Reader(session, topic_id, member, name) for member in ("one", "other"))
        session.observe("begin", one.begin(most=1))
        other.begin(most=0)
        one.send({**one.body(most=4), field: value}, note="wrong")
        one.say((0, 2, ACCEPT))
        other.fetch(note="what is left")
        other.say((3, 8, ACCEPT))
        one.say((3, 8, ACCEPT))

    pair.compare(scenario)


def test_the_same_partition_twice(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, 3, 3, 3)
        one = Reader(session, topic_id, "one", name)
        session.observe("begin", one.begin(most=1))
        body: Any = one.body((0, 0, ACCEPT))
        [topic] = body["topics"]
        [row] = topic["partitions"]
        again = {
            **row,
            "acknowledgement_batches": [{"first_offset": 1, "last_offset": 1, "acknowledge_types": [2]}],
        }
        one.send({**body, "topics": [{**topic, "partitions": [row, again]}]}, note="twice")
        one.fetch(note="after")
        one.say((0, 2, ACCEPT))

    pair.compare(scenario)


@pytest.mark.parametrize("deleted", [4, 8, 12])
def test_the_log_start_moves_under_what_is_in_flight(pair: Pair, name: str, deleted: int) -> None:
    """Of the records, some are accepted, some released, and some still acquired."""

    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        topic_id = share_topic(session, name, *[4] * 6)
        one, other = (Reader(session, topic_id, member, name) for member in ("one", "other"))
        session.observe("begin", one.begin(most=10))
        session.observe("begin", other.begin(most=4))
        one.say((1, 2, ACCEPT), (5, 5, RELEASE), (6, 6, REJECT), (9, 9, ACCEPT))
        session.delete_records(name, deleted)
        other.fetch(note="after records were deleted", most=1)
        other.fetch(note="and again", most=1)
        one.say((0, 0, ACCEPT), note="deleted")
        one.say((3, 4, RELEASE), note="perhaps deleted")
        one.say((7, 8, RENEW), note="perhaps deleted, renewed", renew=True)
        one.say((4, 11, [1, 1, 0, 2, 3, 1, 2, 1]), note="some twice")
        one.say((10, 11, RELEASE))
        other.fetch(note="what was given back")
        other.say((12, 15, REJECT))

    pair.compare(scenario)


@pytest.mark.parametrize("start", [2, 10])
def test_an_altered_start_offset_outside_the_log(pair: Pair, name: str, start: int) -> None:
    """Before the log start, the group goes on there; beyond the end, it gets what comes from that offset on."""

    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, 4, 4)
        session.delete_records(name, 4)
        member = {"group_id": name, "member_id": "initializing-member", "member_epoch": -1}
        session.call_unobserved("ShareGroupHeartbeat", 1, member)
        row = {"partition_index": 0, "start_offset": start}
        body = {"group_id": name, "topics": [{"topic_name": name, "partitions": [row]}]}
        session.call("AlterShareGroupOffsets", 0, body)
        one = Reader(session, topic_id, "one", name)
        if start < 4:
            session.observe("acquired", one.begin())
        else:
            one.begin(most=0)
        for _ in range(2):
            session.produce(name, batch(2))
        one.epoch = 0
        session.observe("acquired later", one.begin())

    pair.compare(scenario)


def test_locks_end_over_a_partly_acknowledged_batch(own_broker: OwnBrokers, name: str) -> None:
    """Accepted and rejected records stay so; all others come again, up to the limit, and then the next records."""
    session = Session(own_broker({"group.share.min.record.lock.duration.ms": "1000"}).bootstrap)
    topic_id = share_topic(
        session, name, 10, 4, share_delivery_count_limit="2", share_record_lock_duration_ms="3000"
    )
    one, other = (Reader(session, topic_id, member, name) for member in ("one", "other"))
    assert one.begin(most=10) == [(0, 9, 1)]
    other.begin(most=0)
    assert one.say((0, 1, ACCEPT), (4, 5, RELEASE), (8, 8, REJECT))["error_code"] == 0
    seen: dict[int, list[int]] = {}
    deadline = now_ms() + DEADLINE_MS
    while sorted(seen) != [2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13] or min(map(max, seen.values())) < 2:
        for first, last, count in other.fetch(wait_ms=500):
            for offset in range(first, last + 1):
                seen.setdefault(offset, []).append(count)
            other.say((first, last, RELEASE))
        assert now_ms() < deadline, seen
    assert all(counts == [2] for offset, counts in seen.items() if offset < 10), seen
    assert other.fetch() == []
    session.end()
