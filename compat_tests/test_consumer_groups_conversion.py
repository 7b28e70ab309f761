"""Groups that change their protocol while in use, on both targets, field by field: upwards, mixed, downwards; and what
is stored of consumer groups (KIP-848)."""

import struct
from typing import Any

import pytest

from compat_tests.consumer_members import MEMBER_ID_LENGTH, Member, Topics, described, run
from compat_tests.definitions import Fields
from compat_tests.differential import Pair, Session
from compat_tests.test_diff_offset_records import batches_of, seen
from oncelog.wire.stored.consumer_protocol import ConsumerProtocolAssignment
from oncelog.wire.stored.coordinator import decode_key, decode_value, encode_key, encode_value
from oncelog.wire.stored.groups import (
    KEY_TYPES,
    VALUE_TYPES,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
)

pytestmark = pytest.mark.slow

SESSION_MS, REBALANCE_MS = 45_000, 60_000
SMALLEST_ASSIGNMENT = 10
"""Bytes: a version, no topics, no user data."""


def subscription(topics: list[str], owned: dict[str, list[int]] | None = None, generation: int = -1) -> bytes:
    """What a consumer says of itself in version 3, by hand."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    parts = [struct.pack(">hi", 3, len(topics)), *map(text, topics), struct.pack(">i", -1)]
    parts.append(struct.pack(">i", len(owned or {})))
    for name, numbers in (owned or {}).items():
        parts += [text(name), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    parts += [struct.pack(">i", generation), struct.pack(">h", -1)]
    return b"".join(parts)


def assigned(data: bytes) -> Any:
    """A SyncGroup's assignment: version, partitions by topic, user data."""
    if len(data) < SMALLEST_ASSIGNMENT:
        return data
    made = ConsumerProtocolAssignment.decode(data, 0, 2)
    rows = {row.topic: sorted(row.partitions) for row in made.assigned_partitions}
    return [data[:2], dict(sorted(rows.items())), made.user_data]


class Classic:
    """A member of the classic protocol, cooperative: it keeps what it owns while it joins again."""

    def __init__(
        self, topics: Topics, group: str, name: str, names: list[str], instance: str | None = None
    ) -> None:
        self.session = topics.session
        self.group = group
        self.name = name
        self.names = names
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}

    def _show(self, note: str, answer: Any) -> Any:
        shown = dict(answer)
        for field in ("member_id", "leader"):
            if shown.get(field):
                shown[field] = "a member id"
        for row in shown.get("members", ()):
            row["member_id"] = "a member id"
            if "metadata" in row:
                row["metadata"] = len(row["metadata"])
        if "assignment" in shown:
            shown["assignment"] = assigned(bytes(shown["assignment"]))
        self.session.remember(f"{self.name} {note}", shown)
        return answer

    def join(self, note: str = "joins", **changes: Any) -> Any:
        metadata = subscription(self.names, self.owned, self.generation)
        body: Fields = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [
                {"name": "cooperative-sticky", "metadata": metadata},
                {"name": "range", "metadata": metadata},
            ],
        }
        answer = self.session.quiet("JoinGroup", 9, body | changes)
        if answer["error_code"] in (0, 79) and "member_id" not in changes:
            self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        return self._show(f"{note}: JoinGroup", answer)

    def sync(self, note: str = "syncs", assignments: dict[str, bytes] | None = None, **changes: Any) -> Any:
        rows = [{"member_id": key, "assignment": value} for key, value in (assignments or {}).items()]
        body = self._as_member() | {
            "protocol_type": "consumer",
            "protocol_name": "cooperative-sticky",
            "assignments": rows,
        }
        answer = self.session.quiet("SyncGroup", 5, body | changes)
        if answer["error_code"] == 0:
            made = assigned(bytes(answer["assignment"]))
            self.owned = made[1] if isinstance(made, list) else {}
        return self._show(f"{note}: SyncGroup", answer)

    def enter(self, note: str = "enters") -> None:
        if self.join(note)["error_code"] == 79:
            self.join(f"{note} with its id")

    def beat(self, note: str = "lives", **changes: Any) -> Any:
        return self._show(
            f"{note}: Heartbeat", self.session.quiet("Heartbeat", 4, self._as_member() | changes)
        )

    def follow(self, note: str) -> None:
        """Join again and sync, as often as it is told to."""
        for turn in range(5):
            if self.beat(f"{note} {turn}")["error_code"] != 27:
                return
            self.join(f"{note} {turn}")
            self.sync(f"{note} {turn}")

    def leave(self, note: str = "leaves", **changes: Any) -> None:
        row = {"member_id": self.member_id, "group_instance_id": self.instance}
        body: Fields = {"group_id": self.group, "members": [row | changes]}
        self._show(f"{note}: LeaveGroup", self.session.quiet("LeaveGroup", 5, body))

    def commit(self, note: str, generation: int | None = None) -> None:
        row = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_metadata": "",
            "committed_leader_epoch": -1,
        }
        body: Fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation if generation is None else generation,
            "member_id": self.member_id,
            "topics": [{"name": self.names[0], "partitions": [row]}],
        }
        self.session.call("OffsetCommit", 8, body, note)

    def _as_member(self) -> Fields:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }


def described_classic(session: Session, group: str, note: str) -> None:
    """DescribeGroups; what members say is as long as before."""
    answer = session.quiet("DescribeGroups", 6, {"groups": [group]})
    for row in answer["groups"]:
        for member in row["members"]:
            member["member_id"] = "a member id"
            member["member_metadata"] = len(member["member_metadata"])
            member["member_assignment"] = assigned(bytes(member["member_assignment"]))
        row["members"].sort(key=str)
    session.remember(f"{group} {note}: DescribeGroups", answer)


def everything(name: str, partitions: int) -> bytes:
    rows = struct.pack(f">i{partitions}i", partitions, *range(partitions))
    return struct.pack(">hih", 0, 1, len(name)) + name.encode() + rows + struct.pack(">i", -1)


def founded(topics: Topics, name: str, partitions: int, instance: str | None = None) -> Classic:
    """A classic group of one, which owns everything."""
    one = Classic(topics, name, "classic", [name], instance)
    one.enter()
    one.sync("leads", {one.member_id: everything(name, partitions)})
    one.beat()
    return one


def test_up_and_down_again(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        old = founded(topics, name, 4)
        described(topics, name, "classic")
        new = Member(topics, name, "new", [name])
        new.beat("not without joining", member_epoch=3)
        new.join("a consumer joins")
        described(topics, name, "converted")
        described_classic(session, name, "converted")
        old.commit("a classic member commits")
        old.beat("told to join again")
        old.sync("before that")
        old.join("rejoins")
        described(topics, name, "rejoined")
        old.sync()
        old.follow("gives up its half")
        old.commit("with its generation")
        old.commit("with one before", old.generation - 1)
        old.commit("with one to come", old.generation + 1)
        new.beat("gets its half")
        new.acknowledge()
        described(topics, name, "mixed")
        old.beat("another generation", generation_id=99)
        old.beat("a stranger", member_id="nobody")
        old.beat("the consumer's id", member_id="new", generation_id=new.epoch)
        old.sync("another type", protocol_type="connect")
        old.sync("another protocol", protocol_name="range")
        old.sync("another generation", generation_id=99)
        new.leave("the last consumer leaves")
        described(topics, name, "downgraded")
        described_classic(session, name, "downgraded")
        old.beat("told to join again")
        old.join("joins the classic group")
        old.sync("leads again", {old.member_id: everything(name, 4)})
        described_classic(session, name, "classic again")
        old.leave()

    run(pair, name, scenario)


def test_classic_members_join_a_consumer_group(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        new = Member(topics, name, "new", [name])
        new.join()
        old = Classic(topics, name, "classic", [name])
        old.join("another type", protocol_type="connect")
        old.join("no protocols", protocols=[])
        old.join("nonsense", protocols=[{"name": "range", "metadata": b"\\x00"}], member_id="said")
        old.enter()
        old.sync("has nothing yet")
        new.acknowledge("told to revoke")
        new.acknowledge("revoked")
        old.follow("gets its half")
        described(topics, name, "mixed")
        other = Classic(topics, name, "other", [name])
        other.join(
            "without a protocol in common", protocols=[{"name": "own", "metadata": subscription([name])}]
        )
        old.leave("a stranger leaves", member_id="nobody")
        old.leave("a strange instance leaves", group_instance_id="i9")
        old.leave()
        described(topics, name, "the consumer only")
        new.leave()
        described(topics, name, "empty")
        old.member_id, old.generation, old.owned = "", -1, {}
        old.enter()
        described_classic(session, name, "an empty group becomes a classic one")

    run(pair, name, scenario)


def test_static_members_change_their_protocol(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        old = founded(topics, name, 4, instance="i1")
        new = Member(topics, name, "new", [name], instance="i1")
        new.join("the same instance, upgraded")
        described(topics, name, "upgraded")
        old.beat("the old one")
        old.join("the old one")
        new.acknowledge("has everything")
        again = Classic(topics, name, "again", [name], instance="i1")
        again.join("the same instance, downgraded")
        described_classic(session, name, "downgraded")
        again.sync("after the downgrade")
        again.beat("after the downgrade")
        again.leave()

    run(pair, name, scenario)


def test_a_group_that_is_no_group_of_consumers(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        worker = Classic(topics, name, "worker", [name])
        worker.join("connect", protocol_type="connect")
        worker.join("connect again", protocol_type="connect")
        worker.sync("connect", {worker.member_id: b"x"}, protocol_type="connect")
        new = Member(topics, name, "new", [name])
        new.join("to workers")
        new.beat("to workers", member_epoch=1)
        new.leave("to workers")
        described(topics, name, "workers")

    run(pair, name, scenario)


def test_a_custom_assignor(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        old = Classic(topics, name, "classic", [name])
        old.enter()
        custom = everything(name, 1)[:-4] + struct.pack(">i", 2) + b"my"
        old.sync("leads", {old.member_id: custom})
        new = Member(topics, name, "new", [name])
        new.join("user data would be lost")
        old.sync("nonsense", {})

    run(pair, name, scenario)


def test_what_is_stored(pair: Pair, name: str) -> None:
    """The records of a group's life. Kafka may write those of several steps as one batch."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one = Member(topics, name, "one", [name], instance="i1")
        two = Member(topics, name, "two", [name], assignor="range")
        one.join()
        two.join("two joins")
        one.acknowledge("told to revoke")
        one.acknowledge("revoked")
        two.beat("gets its share")
        one.leave("for a while", epoch=-2)
        Member(topics, name, "one-again", [name], instance="i1").join("returns")
        two.leave()
        old = Classic(topics, name, "classic", [name])
        old.enter()
        Member(topics, name, "one-again", [name], instance="i1").leave("for good")
        old.leave("for good")
        regex = Member(topics, name, "regex", regex=f"{name}|nothing")
        regex.join("by expression")
        regex.until(lambda answer: bool(answer["assignment"]), "resolved")
        regex.beat("no expression", subscribed_topic_regex="", subscribed_topic_names=[name])
        regex.leave("the last")
        session.quiet("DeleteGroups", 2, {"groups_names": [name]})
        ids = {old.member_id: "a member id"}
        rows: list[Any] = []
        for _, found in batches_of(session, name):
            for record in found:
                assert record.key is not None
                key = decode_key(record.key, KEY_TYPES)
                assert key is not None
                if name not in (getattr(key, "group_id", ""), getattr(key, "group", "")):
                    continue
                assert encode_key(key) == record.key
                value = None
                if record.value is not None:
                    value = decode_value(record.value, VALUE_TYPES[key.API_KEY])
                    assert encode_value(value, int.from_bytes(record.value[:2], "big")) == record.value
                rows.append([type(key).__name__, plain(seen(key), ids), plain(seen(value), ids)])
                shown = rows[-1][2]
                if isinstance(key, ConsumerGroupMetadataKey) and shown:
                    shown["metadata_hash"] = shown["metadata_hash"] != 0
                if isinstance(key, ConsumerGroupRegularExpressionKey) and shown:
                    shown["version"] = shown["version"] > 0
        for row in in_order(rows):
            session.remember(f"stored: {row[0]}", row)

    run(pair, name, scenario)


def plain(value: Any, ids: dict[str, str]) -> Any:
    """As numbers, texts and lists."""
    if isinstance(value, str):
        return "a member id" if len(value) == MEMBER_ID_LENGTH else ids.get(value, value)
    if isinstance(value, dict):
        return {key: plain(one, ids) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one, ids) for one in value]
    return plain(seen(value), ids) if hasattr(value, "__slots__") else value


def in_order(rows: list[Any]) -> list[Any]:
    """Neighbours of one type are in the order of a hash map of members."""
    made: list[Any] = []
    for row in rows:
        at = len(made)
        while at and made[at - 1][0] == row[0] and str(made[at - 1][1]) > str(row[1]):
            at -= 1
        made.insert(at, row)
    return made


def test_a_protocol_named_twice(pair: Pair, name: str) -> None:
    """It counts twice among the members that know it, so nobody who has only that may join."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)

        def protocols(*names: str) -> list[Fields]:
            return [{"name": one, "metadata": subscription([name])} for one in names]

        def enter(group: str, who: str, *names: str) -> Classic:
            member = Classic(topics, group, who, [name])
            if member.join(f"{who} enters", protocols=protocols(*names))["error_code"] == 79:
                member.join(f"{who} enters with its id", protocols=protocols(*names))
            return member

        Member(topics, name, "new", [name]).join("a consumer group")
        twice = enter(name, "twice", "range", "range", "sticky")
        enter(name, "range alone", "range")
        other = enter(name, "both", "sticky", "range")
        twice.leave()
        enter(name, "range alone, later", "range")
        other.leave()

    run(pair, name, scenario)
