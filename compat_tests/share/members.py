"""Members of share groups that send hand-made ShareGroupHeartbeats, for scenarios that compare both targets.

Of an assignment, how many partitions each topic has is compared: which ones depends on the order of hash tables.
"""

from collections.abc import Callable
from typing import Any

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.group_requests.consumer_members import DEADLINE_MS, GROUP_RESOURCE, Topics
from tests.common.batches import now_ms
from tests.common.definitions import Fields

VERSION = 1
ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"


class ShareMember:
    """A member of a share group."""

    def __init__(self, topics: Topics, group: str, member_id: str, names: list[str]) -> None:
        self.topics = topics
        self.session = topics.session
        self.group = group
        self.member_id = member_id
        self.names = names
        self.epoch = 0
        self.assigned: dict[str, list[int]] = {}

    def heartbeat_unobserved(self, **changes: Any) -> Any:
        """The response to a heartbeat that has only the required fields and `changes`."""
        body: Fields = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        response = self.session.call_unobserved("ShareGroupHeartbeat", VERSION, body | changes)
        assert isinstance(response, dict), response
        if response["error_code"] == 0:
            self.epoch = response["member_epoch"]
            if response["assignment"] is not None:
                self.assigned = self.topics.by_name(response["assignment"]["topic_partitions"])
                response["assignment"] = counts(self.assigned)
        return response

    def heartbeat(self, note: str = "", **changes: Any) -> Any:
        """`heartbeat_unobserved`, and observe the response."""
        response = self.heartbeat_unobserved(**changes)
        shown = dict(response)
        self.session.observe(f"{self.group} {note}: error message", [shown.pop("error_message")])
        self.session.observe(f"{self.group} {note}", shown)
        return response

    def join(self, note: str = "joins", **changes: Any) -> Any:
        self.epoch = 0
        return self.heartbeat(note, **({"subscribed_topic_names": self.names} | changes))

    def leave(self, note: str = "leaves") -> Any:
        return self.heartbeat(note, member_epoch=-1)

    def heartbeat_until(self, has: Callable[[dict[str, list[int]]], bool], note: str) -> None:
        """Heartbeat until it has been assigned what it is to have, and observe only that: initialization takes its
        time, and may come in parts.
        """
        deadline = now_ms() + DEADLINE_MS
        while not has(self.assigned):
            self.heartbeat_unobserved()
            assert now_ms() < deadline, (note, self.assigned)
        self.session.observe(f"{self.group} {note}", counts(self.assigned))

    def heartbeat_until_error(self, code: int) -> None:
        """Heartbeat until the response has this error: Kafka's broker learns of a changed feature a moment later."""
        deadline = now_ms() + DEADLINE_MS
        while self.heartbeat_unobserved()["error_code"] != code:
            assert now_ms() < deadline, code


def counts(assigned: dict[str, list[int]]) -> dict[str, int]:
    return {name: len(partitions) for name, partitions in assigned.items()}


def observe_share_group(topics: Topics, group: str, note: str = "", **changes: Any) -> Any:
    """Observe ShareGroupDescribe with sorted members and with topic names for ids, but not the epochs: how many there
    are depends on when states were initialized. Returns the response.
    """
    body: Fields = {"group_ids": [group], "include_authorized_operations": True}
    response = topics.session.call_unobserved("ShareGroupDescribe", VERSION, body | changes)
    for row in response["groups"]:
        row["group_epoch"] = row["assignment_epoch"] = min(row["group_epoch"], 1)
        for member in row["members"]:
            member["subscribed_topic_names"].sort()
            member["assignment"] = counts(topics.by_name(member["assignment"]["topic_partitions"]))
            member["member_epoch"] = min(member["member_epoch"], 1)
        row["members"].sort(key=lambda one: one["member_id"])
        topics.session.observe(f"{group} {note}: error message", [row.pop("error_message")])
    topics.session.observe(f"{group} described {note}", response)
    return response


def compare_share(
    pair: Pair, group: str, scenario: Callable[[Session, Topics], None], **options: Any
) -> None:
    """`pair.compare` once the group's coordinator is loaded on both targets; without an assignment interval."""

    def with_coordinator(session: Session) -> None:
        wait_for_coordinator(session, group)
        change = {"name": ASSIGNMENT_INTERVAL, "config_operation": 0, "value": "0"}
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [change]}
        response = session.call_unobserved(
            "IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False}
        )
        assert response["responses"][0]["error_code"] == 0, response
        scenario(session, Topics(session, group))

    pair.compare(with_coordinator, **options)
