"""Members of consumer groups by hand-made ConsumerGroupHeartbeat requests, for differential tests."""

import itertools
import re
from collections.abc import Callable
from typing import Any

from compat_tests.batches import now_ms
from compat_tests.definitions import Fields
from compat_tests.differential import Pair, Session
from compat_tests.test_diff_committed_offsets import wait_for_coordinator
from oncelog.broker.coordinators.partition_of_key import partition_of_key

REBALANCE_MS = 60_000
PARTITIONS = 50
PATIENCE_MS = 30_000
MEMBER_ID_LENGTH = 22
"""Of a member id that the coordinator made."""
GROUP_RESOURCE = 32
INTERVAL = "consumer.assignment.interval.ms"


class Topics:
    """Topic ids by name: what is compared are names, and partitions in order."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.ids: dict[str, bytes] = {}
        self._probes = (
            probe
            for number in itertools.count()
            if partition_of_key(probe := f"{group}-probe-{number}", PARTITIONS)
            == partition_of_key(group, PARTITIONS)
        )

    def make(self, name: str, partitions: int = 1) -> bytes:
        self.ids[name] = self.session.topic(name, partitions)
        self.wait_for(name, partitions)
        return self.ids[name]

    def wait_for(self, name: str, partitions: int) -> None:
        """The coordinator of Kafka's group learns of topics a moment later than others: ask one beside it."""
        deadline = now_ms() + PATIENCE_MS
        while True:
            member = Member(self, next(self._probes), "probe", [name])
            answer = member.quiet(**member.joining())
            member.quiet(member_epoch=-1)
            if len(answer["assignment"].get(name, ())) == partitions:
                return
            assert now_ms() < deadline, name

    def named(self, rows: Any) -> dict[str, list[int]]:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return {
            names.get(row["topic_id"], "unknown"): sorted(row["partitions"])
            for row in sorted(rows, key=lambda row: names.get(row["topic_id"], ""))
        }

    def rows(self, partitions: dict[str, list[int]]) -> list[Fields]:
        return [
            {"topic_id": self.ids[name], "partitions": numbers}
            for name, numbers in partitions.items()
            if numbers
        ]


class Member:
    """``owned``: what it says that it owns, by topic name."""

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

    def quiet(self, **changes: Any) -> Any:
        """The answer to a heartbeat that says nothing new but for the changes."""
        body: Fields = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        if self.instance is not None:
            body["instance_id"] = self.instance
        answer = self.session.quiet("ConsumerGroupHeartbeat", self.version, body | changes)
        assert isinstance(answer, dict), answer
        if answer["error_code"] == 0:
            self.member_id, self.epoch = answer["member_id"], answer["member_epoch"]
            if answer["assignment"] is not None:
                answer["assignment"] = self.topics.named(answer["assignment"]["topic_partitions"])
        return answer

    def beat(self, note: str = "", **changes: Any) -> Any:
        answer = self.quiet(**changes)
        text = without_ids(answer.pop("error_message"))
        shown = dict(answer)
        if self.version == 0 and shown["member_id"]:
            assert len(shown["member_id"]) == MEMBER_ID_LENGTH
            shown["member_id"] = "a member id"
        self.session.remember(f"{self.group} {note}", shown)
        self.session.remember(f"{self.group} {note}: its text", [text])
        return answer

    def join(self, note: str = "joins", **changes: Any) -> Any:
        self.epoch = 0
        answer = self.beat(note, **(self.joining() | changes))
        self.take(answer)
        return answer

    def joining(self) -> Fields:
        """What a member says when it joins."""
        body: Fields = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self.names,
            "topic_partitions": [],
            "server_assignor": self.assignor,
        }
        return body | ({"subscribed_topic_regex": self.regex} if self.version >= 1 else {})

    def take(self, answer: Any) -> None:
        if answer["assignment"] is not None:
            self.owned = answer["assignment"]

    def acknowledge(self, note: str = "acknowledges", **changes: Any) -> Any:
        """It owns what it was told to own."""
        answer = self.beat(note, topic_partitions=self.topics.rows(self.owned), **changes)
        self.take(answer)
        return answer

    def leave(self, note: str = "leaves", epoch: int = -1, **changes: Any) -> Any:
        return self.beat(note, member_epoch=epoch, **changes)

    def until(self, wanted: Callable[[Any], bool], note: str, **changes: Any) -> Any:
        """Heartbeats, of which the first with the wanted answer is compared: what came about beside them."""
        deadline = now_ms() + PATIENCE_MS
        while True:
            epoch = self.epoch
            answer = self.quiet(**changes)
            if wanted(answer):
                answer.pop("error_message")
                self.session.remember(f"{self.group} {note}", answer)
                self.take(answer)
                return answer
            assert now_ms() < deadline, (note, answer, epoch)


def without_ids(text: str | None) -> str | None:
    """A text in which made-up member ids are all alike."""
    if text is None:
        return None
    return re.sub(r"(?<![\w-])[\w-]*[\w-]{22}(?![\w-])", "a member id", text)


def described(topics: Topics, group: str, note: str = "", version: int = 1, **changes: Any) -> Any:
    """ConsumerGroupDescribe, members by id, partitions by topic name."""
    body: Fields = {"group_ids": [group], "include_authorized_operations": True}
    answer = topics.session.quiet("ConsumerGroupDescribe", version, body | changes)
    for row in answer["groups"]:
        for member in row["members"]:
            member["subscribed_topic_names"].sort()
            for field in ("assignment", "target_assignment"):
                member[field] = topics.named(member[field]["topic_partitions"])
            if len(member["member_id"]) >= MEMBER_ID_LENGTH:
                member["member_id"] = "a member id"
        row["members"].sort(key=lambda one: (one["instance_id"] or "", one["member_id"], one["member_epoch"]))
        topics.session.remember(f"{group} {note}: its text", [row.pop("error_message")])
    topics.session.remember(f"{group} described {note}", answer)
    return answer


def without_interval(session: Session, group: str) -> None:
    """New assignments are made at once, not after a second."""
    change = {"name": INTERVAL, "config_operation": 0, "value": "0"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [change]}
    answer = session.quiet("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
    assert answer["responses"][0]["error_code"] == 0, answer
    deadline = now_ms() + PATIENCE_MS
    while not any(
        row["resource_name"] == group
        for row in session.quiet("ListConfigResources", 1, {"resource_types": [GROUP_RESOURCE]})[
            "config_resources"
        ]
    ):
        assert now_ms() < deadline, group


def run(pair: Pair, group: str, scenario: Callable[[Session, Topics], None], **options: Any) -> None:
    """Compare a scenario of one group, whose coordinator is there."""

    def whole(session: Session) -> None:
        wait_for_coordinator(session, group)
        without_interval(session, group)
        scenario(session, Topics(session, group))

    pair.compare(whole, **options)
