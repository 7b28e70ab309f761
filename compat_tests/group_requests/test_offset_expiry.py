"""Offsets that expire, and groups that are removed with them, in every state of a group; on both targets.

Commits of versions 2 to 4 have a retention time of their own, here 1 ms. Other offsets expire after a week.
"""

from collections.abc import Callable

import pytest

from compat_tests.brokers import Broker
from compat_tests.differential import Session
from compat_tests.group_requests.classic_members import Member, subscription
from compat_tests.group_requests.committed_offsets import commit_body, wait_for_coordinator
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields

pytestmark = pytest.mark.slow

OWN_RETENTION_VERSION = 4
PROPERTIES = {"offsets.retention.check.interval.ms": "100", "offsets.topic.num.partitions": "1"}
READ, OTHER = "read", "other"


class Offsets:
    """The groups of one broker and their offsets."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def commit(self, group: str, topics: dict[str | bytes, dict[int, int]], **member: object) -> None:
        """Commit with a retention of one millisecond."""
        body = commit_body(OWN_RETENTION_VERSION, group, topics, retention_time_ms=1) | member
        self._assert_committed(self.session.call_unobserved("OffsetCommit", OWN_RETENTION_VERSION, body))

    def keep(self, group: str, topics: dict[str | bytes, dict[int, int]]) -> None:
        """Commit with the default retention, a week."""
        self._assert_committed(self.session.call_unobserved("OffsetCommit", 8, commit_body(8, group, topics)))

    @staticmethod
    def _assert_committed(response: Fields) -> None:
        rows = [row for topic in response["topics"] for row in topic["partitions"]]
        assert rows
        assert all(row["error_code"] == 0 for row in rows), response

    def partitions(self, group: str) -> dict[str, list[int]]:
        """The partitions with an offset, by topic."""
        response = self.session.call_unobserved(
            "OffsetFetch", 8, {"groups": [{"group_id": group, "topics": None}]}
        )
        (row,) = response["groups"]
        assert row["error_code"] == 0
        return {
            topic["name"]: sorted(one["partition_index"] for one in topic["partitions"])
            for topic in row["topics"]
        }

    def groups(self) -> set[str]:
        response = self.session.call_unobserved("ListGroups", 4, {"states_filter": []})
        return {row["group_id"] for row in response["groups"]}

    def wait_for_check(self, name: str) -> None:
        """Wait until a group `name`, whose offset is committed now, is removed: by then older offsets expired too."""
        self.commit(name, {OTHER: {0: 1}})
        deadline = now_ms() + WAIT_MS
        while name in self.groups():
            assert now_ms() < deadline, self.partitions(name)


def test_expiry(own_broker: Callable[..., Broker]) -> None:
    session = Session(own_broker(PROPERTIES).bootstrap)
    try:
        for topic in (READ, OTHER):
            session.topic(topic, 2)
        wait_for_coordinator(session, "any")
        check(session, Offsets(session))
    finally:
        session.end()


def check(session: Session, offsets: Offsets) -> None:
    everything: dict[str | bytes, dict[int, int]] = {READ: {0: 1, 1: 2}, OTHER: {0: 3, 1: 4}}
    offsets.commit("simple", everything)
    offsets.commit("kept", everything)
    offsets.keep("kept", {READ: {1: 2}})
    stable = Member(session, "stable", "one", protocols={"range": subscription(READ)})
    unreadable = Member(session, "unreadable", "two", protocols={"range": b"?"})
    connect = Member(session, "connect", "three", protocols={"range": b"?"}, protocol_type="connect")
    empty = Member(session, "empty", "four", protocols={"range": subscription(READ)})
    members = (stable, unreadable, connect, empty)
    for member in members:
        while member.generation != 1:
            # A group that waits for its first member is still empty: the check for expired groups may remove it.
            member.member_id = ""
            member.found_group()
        offsets.commit(member.group, everything, member_id=member.member_id, generation_id_or_member_epoch=1)
    empty.leave()
    for number in range(2):  # the second check begins after all of the above
        offsets.wait_for_check(f"sentinel-{number}")
    found = {
        group: offsets.partitions(group) for group in ("simple", "kept", *(one.group for one in members))
    }
    whole = {READ: [0, 1], OTHER: [0, 1]}
    assert found == {
        "simple": {},
        "kept": {READ: [1]},
        "stable": {READ: [0, 1]},
        "unreadable": whole,
        "connect": whole,
        "empty": {},
    }
    assert offsets.groups() == {"kept", "stable", "unreadable", "connect"}
    for member in members[:3]:
        member.leave()
    offsets.wait_for_check("sentinel-2")
    offsets.wait_for_check("sentinel-3")
    assert offsets.groups() == {"kept"}
