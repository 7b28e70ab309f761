"""Groups whose protocol changes while members use them, on both targets, field by field: upgraded, mixed, downgraded
(KIP-848)."""

import struct

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_consumers import (
    ClassicConsumer,
    assign_all,
    found_group,
    observe_classic_group,
    subscription,
)
from compat_tests.group_requests.consumer_members import Member, Topics, compare, observe_consumer_group
from tests.common.definitions import Fields

pytestmark = pytest.mark.slow


def test_upgrade_and_downgrade(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        old = found_group(topics, name, 4)
        observe_consumer_group(topics, name, "classic")
        new = Member(topics, name, "new", [name])
        new.heartbeat("not without joining", member_epoch=3)
        new.join("a consumer joins")
        observe_consumer_group(topics, name, "converted")
        observe_classic_group(session, name, "converted")
        old.commit("a classic member commits")
        old.heartbeat("told to join again")
        old.sync("before that")
        old.join("rejoins")
        observe_consumer_group(topics, name, "rejoined")
        old.sync()
        old.follow("gives up its half")
        old.commit("with its generation")
        old.commit("with one before", old.generation - 1)
        old.commit("with one to come", old.generation + 1)
        new.heartbeat("gets its half")
        new.acknowledge()
        observe_consumer_group(topics, name, "mixed")
        old.heartbeat("another generation", generation_id=99)
        old.heartbeat("a stranger", member_id="nobody")
        old.heartbeat("the consumer's id", member_id="new", generation_id=new.epoch)
        old.sync("another type", protocol_type="connect")
        old.sync("another protocol", protocol_name="range")
        old.sync("another generation", generation_id=99)
        new.leave("the last consumer leaves")
        observe_consumer_group(topics, name, "downgraded")
        observe_classic_group(session, name, "downgraded")
        old.heartbeat("told to join again")
        old.join("joins the classic group")
        old.sync("leads again", {old.member_id: assign_all(name, 4)})
        observe_classic_group(session, name, "classic again")
        old.leave()

    compare(pair, name, scenario)


def test_classic_members_join_a_consumer_group(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        new = Member(topics, name, "new", [name])
        new.join()
        old = ClassicConsumer(topics, name, "classic", [name])
        old.join("another type", protocol_type="connect")
        old.join("no protocols", protocols=[])
        old.join("nonsense", protocols=[{"name": "range", "metadata": b"\\x00"}], member_id="said")
        old.join_new()
        old.sync("has nothing yet")
        new.acknowledge("told to revoke")
        new.acknowledge("revoked")
        old.follow("gets its half")
        observe_consumer_group(topics, name, "mixed")
        other = ClassicConsumer(topics, name, "other", [name])
        other.join(
            "without a protocol in common", protocols=[{"name": "own", "metadata": subscription([name])}]
        )
        old.leave("a stranger leaves", member_id="nobody")
        old.leave("a strange instance leaves", group_instance_id="i9")
        old.leave()
        observe_consumer_group(topics, name, "the consumer only")
        new.leave()
        observe_consumer_group(topics, name, "empty")
        old.member_id, old.generation, old.owned = "", -1, {}
        old.join_new()
        observe_classic_group(session, name, "an empty group becomes a classic one")

    compare(pair, name, scenario)


def test_static_members_change_their_protocol(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        old = found_group(topics, name, 4, instance="i1")
        new = Member(topics, name, "new", [name], instance="i1")
        new.join("the same instance, upgraded")
        observe_consumer_group(topics, name, "upgraded")
        old.heartbeat("the old one")
        old.join("the old one")
        new.acknowledge("has everything")
        again = ClassicConsumer(topics, name, "again", [name], instance="i1")
        again.join("the same instance, downgraded")
        observe_classic_group(session, name, "downgraded")
        again.sync("after the downgrade")
        again.heartbeat("after the downgrade")
        again.leave()

    compare(pair, name, scenario)


def test_a_group_of_connect_workers(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        worker = ClassicConsumer(topics, name, "worker", [name])
        worker.join("connect", protocol_type="connect")
        worker.join("connect again", protocol_type="connect")
        worker.sync("connect", {worker.member_id: b"x"}, protocol_type="connect")
        new = Member(topics, name, "new", [name])
        new.join("to workers")
        new.heartbeat("to workers", member_epoch=1)
        new.leave("to workers")
        observe_consumer_group(topics, name, "workers")

    compare(pair, name, scenario)


def test_a_custom_assignor(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        old = ClassicConsumer(topics, name, "classic", [name])
        old.join_new()
        custom = assign_all(name, 1)[:-4] + struct.pack(">i", 2) + b"my"
        old.sync("leads", {old.member_id: custom})
        new = Member(topics, name, "new", [name])
        new.join("user data would be lost")
        old.sync("nonsense", {})

    compare(pair, name, scenario)


def test_a_protocol_named_twice(pair: Pair, name: str) -> None:
    """The member is counted twice for that protocol, so a member that has only this protocol may not join."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)

        def protocols(*names: str) -> list[Fields]:
            return [{"name": one, "metadata": subscription([name])} for one in names]

        def enter(group: str, who: str, *names: str) -> ClassicConsumer:
            member = ClassicConsumer(topics, group, who, [name])
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

    compare(pair, name, scenario)
