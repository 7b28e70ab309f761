"""Limits of share groups, changed under what is in flight, and moved by the broker's own, on both targets.

Which values a group may set at all is in ``groups/test_share_group_tool.py``.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from compat_tests.brokers import make_broker
from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.share.readers import (
    DEADLINE_MS,
    GROUP_RESOURCE,
    VERSION,
    Reader,
    set_group_config,
    share_topic,
)
from tests.common.batches import now_ms
from tests.common.jars import RealPartMissing, require

pytestmark = pytest.mark.slow

ACCEPT, RELEASE, RENEW = [1], [2], [4]
LOCK, LOCKS, DELIVERIES, HEARTBEAT, RESET = (
    "share.record.lock.duration.ms",
    "share.partition.max.record.locks",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.auto.offset.reset",
)
INVALID_CONFIG = 40


def alter(session: Session, group: str, name: str, value: str) -> tuple[int, str | None]:
    """Set a group's key; return the error and its message."""
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [change]}
    response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
    [row] = response["responses"]
    return row["error_code"], row["error_message"]


@pytest.mark.also_on("proxy")
def test_limits_change_under_what_is_in_flight(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, *[10] * 40, share_partition_max_record_locks="200")
        one, other = (Reader(session, topic_id, member, name) for member in ("one", "other"))

        def change(lock_ms: int, **values: str) -> None:
            """Kafka's broker learns of it a moment later: a response tells the time of new locks."""
            set_group_config(session, name, share_record_lock_duration_ms=str(lock_ms), **values)
            deadline = now_ms() + DEADLINE_MS
            while True:
                response = other.connection.call("ShareFetch", VERSION, other.body(most=0))
                other.epoch += 1
                if response["acquisition_lock_timeout_ms"] == lock_ms:
                    return
                assert now_ms() < deadline, response

        session.observe("begin", one.begin(most=150))
        other.begin(most=0)
        change(40_000, share_partition_max_record_locks="100")
        one.fetch(note="more are in flight than may be")
        one.say((140, 149, RELEASE))
        other.fetch(note="what was given back")
        one.say((0, 59, ACCEPT))
        other.fetch(note="there is room for ten")
        one.say((60, 139, RELEASE))
        one.fetch(note="delivered twice")
        one.say((60, 139, RELEASE))
        one.fetch(note="delivered three times", most=20)
        one.fetch(note="delivered three times, more", most=20)
        change(41_000, share_delivery_count_limit="2")
        one.say((60, 75, RELEASE), note="delivered more often than may be")
        other.say((140, 149, RELEASE), (150, 159, RELEASE))
        other.fetch(note="after the lower limit")
        other.fetch(note="and more")
        change(42_000, share_delivery_count_limit="5", share_partition_max_record_locks="300")
        other.fetch(note="after higher limits")
        other.fetch(note="and more again")
        change(43_000, share_renew_acknowledge_enable="false")
        other.say((180, 189, RENEW), note="renewals were forbidden", renew=True)
        other.say((180, 189, ACCEPT))

    pair.compare(scenario)


LOWER = {
    "group.share.max.record.lock.duration.ms": "40000",
    "group.share.max.delivery.count.limit": "5",
    "group.share.max.partition.max.record.locks": "2000",
    "group.share.max.heartbeat.interval.ms": "9000",
}
HIGHER = {
    "group.share.min.record.lock.duration.ms": "20000",
    "group.share.min.delivery.count.limit": "3",
    "group.share.min.partition.max.record.locks": "150",
    "group.share.min.heartbeat.interval.ms": "5000",
}
BEFORE = {"group.share.min.heartbeat.interval.ms": "1000", "group.share.heartbeat.interval.ms": "5000"}


def locks_of(reader: Reader) -> int:
    """The milliseconds for which records are locked now."""
    response: Any = reader.connection.call("ShareFetch", VERSION, reader.body(most=0))
    reader.epoch += 1
    return int(response["acquisition_lock_timeout_ms"])


def deliveries_of(reader: Reader, offset: int) -> int:
    """Give a record back until it does not come again; return how often it came in all."""
    count = 1
    while True:
        reader.say((offset, offset, RELEASE))
        acquired = reader.fetch(most=1)
        if acquired != [(offset, offset, count + 1)]:
            return count
        count += 1


def heartbeat_ms(session: Session, group: str) -> int:
    body = {"group_id": group, "member_id": "beats", "member_epoch": 0, "subscribed_topic_names": [group]}
    response = session.call_unobserved("ShareGroupHeartbeat", 1, body)
    assert response["error_code"] == 0, response
    session.call_unobserved(
        "ShareGroupHeartbeat", 1, {**body, "member_epoch": -1, "subscribed_topic_names": None}
    )
    return int(response["heartbeat_interval_ms"])


def test_the_broker_starts_with_other_limits(target: str, name: str, tmp_path: pathlib.Path) -> None:
    """A group's setting counts as the nearest allowed value, which the log says, but is shown as it was set."""
    high, low = f"{name}-high", f"{name}-low"
    own = {
        high: {LOCK: "50000", DELIVERIES: "10", LOCKS: "4000", HEARTBEAT: "15000"},
        low: {LOCK: "15000", DELIVERIES: "2", LOCKS: "100", HEARTBEAT: "1000"},
    }
    try:
        with make_broker(target, BEFORE, tmp_path / "data") as broker:
            session = Session(broker.bootstrap)
            ids = {group: share_topic(session, group, *[100] * 25) for group in own}
            for group, values in own.items():
                set_group_config(
                    session, group, **{key.replace(".", "_"): text for key, text in values.items()}
                )
            session.end()
    except RealPartMissing as missing:
        require(str(missing))
    with make_broker(target, {**LOWER, **HIGHER}, tmp_path / "data") as broker:
        session = Session(broker.bootstrap)
        for group, values in own.items():
            wait_for_coordinator(session, group)
            asked = {
                "resource_type": GROUP_RESOURCE,
                "resource_name": group,
                "configuration_keys": list(values),
            }
            [described] = session.call_unobserved("DescribeConfigs", 4, {"resources": [asked]})["results"]
            assert {row["name"]: row["value"] for row in described["configs"]} == values
        found = {}
        for group in own:
            reader = Reader(session, ids[group], "one", group)
            reader.begin(most=1)
            while reader.fetch(most=4000):
                pass
            in_flight = len(reader.held)
            reader.say((1, max(reader.held), ACCEPT))
            found[group] = {
                LOCK: locks_of(reader),
                LOCKS: in_flight,
                HEARTBEAT: heartbeat_ms(session, group),
                DELIVERIES: deliveries_of(reader, 0),
            }
        assert found == {
            high: {LOCK: 40_000, LOCKS: 2_000, HEARTBEAT: 9_000, DELIVERIES: 5},
            # A batch of 100 began while there was room for 50.
            low: {LOCK: 20_000, LOCKS: 200, HEARTBEAT: 5_000, DELIVERIES: 3},
        }
        # All of a group's values are checked with each change.
        text = f"{HEARTBEAT} must be in the range 5000 to 9000 inclusive."
        assert alter(session, high, RESET, "latest") == (INVALID_CONFIG, text)
        session.end()
        lines = broker.output().splitlines()
        for group, values in own.items():
            for key, value in values.items():
                said = [line for line in lines if f"{key} " in line.replace("'", " ") and group in line]
                assert [line for line in said if "WARN" in line and value in line], (group, key, lines)
