"""Members of the consumer protocol that change their instance id (KAFKA-20747): the old one is anybody's then."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.consumer_members import Member, Topics, compare, observe_consumer_group

pytestmark = [pytest.mark.slow, pytest.mark.also_on("proxy")]


def rename(member: Member) -> None:
    member.join(f"{member.member_id} joins as blue", instance_id="blue")
    member.join(f"{member.member_id} joins again as green", instance_id="green")


def test_another_member_takes_the_old_one(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one, two = Member(topics, name, "A", [name]), Member(topics, name, "B", [name])
        rename(one)
        two.join("B joins as blue", instance_id="blue")
        observe_consumer_group(topics, name, "both")
        one.heartbeat("A lives as green", instance_id="green")
        one.leave("A leaves as green", instance_id="green")
        two.heartbeat("B lives as blue", instance_id="blue")
        observe_consumer_group(topics, name, "B alone")

    compare(pair, name, scenario)


def test_another_member_takes_the_old_one_when_the_first_has_left(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one, two = Member(topics, name, "A", [name]), Member(topics, name, "C", [name])
        rename(one)
        one.leave("A leaves as green", instance_id="green")
        two.join("C joins as blue", instance_id="blue")
        two.join("C joins again as green", instance_id="green")
        observe_consumer_group(topics, name, "C alone")

    compare(pair, name, scenario)


@pytest.mark.parametrize("epoch", [1, 2, -1, -2])
def test_the_old_one_is_unknown(pair: Pair, name: str, epoch: int) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)
        one = Member(topics, name, "A", [name])
        rename(one)
        one.heartbeat("A as blue", instance_id="blue", member_epoch=epoch)
        one.heartbeat("A as green", instance_id="green")
        observe_consumer_group(topics, name, "A is there")

    compare(pair, name, scenario)


def test_a_member_that_was_dynamic(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)
        one, two = Member(topics, name, "A", [name]), Member(topics, name, "B", [name])
        one.join("A joins")
        one.join("A joins again as blue", instance_id="blue")
        two.join("B joins as blue", instance_id="blue")
        one.join("A joins again without", instance_id=None)
        two.join("B joins as blue", instance_id="blue")
        one.leave("A leaves for a while as blue", epoch=-2, instance_id="blue")
        two.join("B joins as blue", instance_id="blue")
        observe_consumer_group(topics, name, "both")

    compare(pair, name, scenario)


def test_the_assignment_of_a_renamed_member(pair: Pair, name: str) -> None:
    """The range assignor sorts members by their instance ids."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 3)
        one = Member(topics, name, "A", [name], assignor="range")
        two = Member(topics, name, "B", [name], assignor="range")
        one.join("A joins as a", instance_id="a")
        two.join("B joins as b", instance_id="b")
        one.acknowledge("A is told to revoke", instance_id="a")
        one.acknowledge("A has revoked", instance_id="a")
        two.acknowledge("B gets its share", instance_id="b")
        one.join("A joins again as z", instance_id="z")
        two.heartbeat("B lives", instance_id="b")
        observe_consumer_group(topics, name, "both")

    compare(pair, name, scenario)
