"""Members of consumer groups that send hand-made ConsumerGroupHeartbeats, for scenarios that compare both targets."""

import itertools
import re
from collections.abc import Callable
from typing import Any

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from oncelog.broker.coordinators.partition_of_key import partition_of_key
from tests.common.batches import now_ms
from tests.common.definitions import Fields
from tests.common.real_kafka import INTERNAL_PARTITIONS

REBALANCE_MS = 60_000
DEADLINE_MS = 30_000
MEMBER_ID_LENGTH = 22
"""The length of a member id that the coordinator generated."""
GROUP_RESOURCE = 32
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class Topics:
    """The scenario's topics, their ids by name: assignments are compared by topic name, with sorted partitions."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.ids: dict[str, bytes] = {}
        self._probes = (
            probe
            for number in itertools.count()
            if partition_of_key(probe := f"{group}-probe-{number}", INTERNAL_PARTITIONS)
            == partition_of_key(group, INTERNAL_PARTITIONS)
        )

    def make(self, name: str, partitions: int = 1) -> bytes:
        self.ids[name] = self.session.topic(name, partitions)
        self.wait_for(name, partitions)
        return self.ids[name]

    def wait_for(self, name: str, partitions: int) -> None:
        """Wait until the group's coordinator knows the topic, which in Kafka takes a moment.

        A probe group of the same coordinator joins until it is assigned all partitions.
        """
        deadline = now_ms() + DEADLINE_MS
        while True:
            member = Member(self, next(self._probes), "probe", [name])
            response = member.heartbeat_unobserved(**member.join_fields())
            member.heartbeat_unobserved(member_epoch=-1)
            if len(response["assignment"].get(name, ())) == partitions:
                return
            assert now_ms() < deadline, name

    def by_name(self, rows: Any) -> dict[str, list[int]]:
        """Rows of topic ids and partitions as sorted partitions by topic name."""
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return {
            names.get(row["topic_id"], "unknown"): sorted(row["partitions"])
            for row in sorted(rows, key=lambda row: names.get(row["topic_id"], ""))
        }

    def rows(self, partitions: dict[str, list[int]]) -> list[Fields]:
        """The reverse of `by_name`."""
        return [
            {"topic_id": self.ids[name], "partitions": numbers}
            for name, numbers in partitions.items()
            if numbers
        ]


class Member:
    """A member of a consumer group; ``owned`` are the partitions that it reports as its own, by topic name."""

    def __init__(
        self,
        topics: Topics,
        group: str,
        member_id: str,
        names: list[str] | None = None,
        *,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        version: int = 1,
    ) -> None:
        self.topics = topics
        self.session = topics.session
        self.group = group
        self.member_id = member_id
        self.names = names
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.version = version
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}

    def heartbeat_unobserved(self, **changes: Any) -> Any:
        """The response to a heartbeat that has only the required fields and `changes`."""
        body: Fields = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        if self.instance is not None:
            body["instance_id"] = self.instance
        response = self.session.call_unobserved("ConsumerGroupHeartbeat", self.version, body | changes)
        assert isinstance(response, dict), response
        if response["error_code"] == 0:
            self.member_id, self.epoch = response["member_id"], response["member_epoch"]
            if response["assignment"] is not None:
                response["assignment"] = self.topics.by_name(response["assignment"]["topic_partitions"])
        return response

    def heartbeat(self, note: str = "", **changes: Any) -> Any:
        """`heartbeat_unobserved`, and observe the response."""
        response = self.heartbeat_unobserved(**changes)
        text = without_ids(response.pop("error_message"))
        shown = dict(response)
        if self.version == 0 and shown["member_id"]:
            assert len(shown["member_id"]) == MEMBER_ID_LENGTH
            shown["member_id"] = "a member id"
        self.session.observe(f"{self.group} {note}", shown)
        self.session.observe(f"{self.group} {note}: error message", [text])
        return response

    def join(self, note: str = "joins", **changes: Any) -> Any:
        self.epoch = 0
        response = self.heartbeat(note, **(self.join_fields() | changes))
        self.take_assignment(response)
        return response

    def join_fields(self) -> Fields:
        """The fields that only a full heartbeat has, as a member sends them when it joins."""
        body: Fields = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self.names,
            "topic_partitions": [],
            "server_assignor": self.assignor,
        }
        return body | ({"subscribed_topic_regex": self.regex} if self.version >= 1 else {})

    def take_assignment(self, response: Any) -> None:
        if response["assignment"] is not None:
            self.owned = response["assignment"]

    def acknowledge(self, note: str = "acknowledges", **changes: Any) -> Any:
        """Report the assigned partitions as owned."""
        response = self.heartbeat(note, topic_partitions=self.topics.rows(self.owned), **changes)
        self.take_assignment(response)
        return response

    def leave(self, note: str = "leaves", epoch: int = -1, **changes: Any) -> Any:
        return self.heartbeat(note, member_epoch=epoch, **changes)

    def heartbeat_until(self, is_expected: Callable[[Any], bool], note: str, **changes: Any) -> Any:
        """Heartbeat until `is_expected` is true of the response, and observe only that: it depends on other events."""
        deadline = now_ms() + DEADLINE_MS
        while True:
            epoch = self.epoch
            response = self.heartbeat_unobserved(**changes)
            if is_expected(response):
                response.pop("error_message")
                self.session.observe(f"{self.group} {note}", response)
                self.take_assignment(response)
                return response
            assert now_ms() < deadline, (note, response, epoch)


def without_ids(text: str | None) -> str | None:
    """The text with generated member ids replaced."""
    if text is None:
        return None
    return re.sub(r"(?<![\w-])[\w-]*[\w-]{22}(?![\w-])", "a member id", text)


def observe_consumer_group(
    topics: Topics, group: str, note: str = "", version: int = 1, **changes: Any
) -> Any:
    """Observe ConsumerGroupDescribe with sorted members and with topic names for ids; the response."""
    body: Fields = {"group_ids": [group], "include_authorized_operations": True}
    response = topics.session.call_unobserved("ConsumerGroupDescribe", version, body | changes)
    for row in response["groups"]:
        for member in row["members"]:
            member["subscribed_topic_names"].sort()
            for field in ("assignment", "target_assignment"):
                member[field] = topics.by_name(member[field]["topic_partitions"])
            if len(member["member_id"]) >= MEMBER_ID_LENGTH:
                member["member_id"] = "a member id"
        row["members"].sort(key=lambda one: (one["instance_id"] or "", one["member_id"], one["member_epoch"]))
        topics.session.observe(f"{group} {note}: error message", [row.pop("error_message")])
    topics.session.observe(f"{group} described {note}", response)
    return response


def assign_at_once(session: Session, group: str) -> None:
    """Set the group's assignment interval to 0: new target assignments follow at once, not after a second."""
    change = {"name": ASSIGNMENT_INTERVAL, "config_operation": 0, "value": "0"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [change]}
    response = session.call_unobserved(
        "IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False}
    )
    assert response["responses"][0]["error_code"] == 0, response
    deadline = now_ms() + DEADLINE_MS
    while not any(
        row["resource_name"] == group
        for row in session.call_unobserved("ListConfigResources", 1, {"resource_types": [GROUP_RESOURCE]})[
            "config_resources"
        ]
    ):
        assert now_ms() < deadline, group


def compare(pair: Pair, group: str, scenario: Callable[[Session, Topics], None], **options: Any) -> None:
    """`pair.compare` once the group's coordinator is loaded on both targets; without an assignment interval."""

    def with_coordinator(session: Session) -> None:
        wait_for_coordinator(session, group)
        assign_at_once(session, group)
        scenario(session, Topics(session, group))

    pair.compare(with_coordinator, **options)
