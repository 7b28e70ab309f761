"""The consumer group protocol (KIP-848) on both targets, field by field: joins, acknowledgements, epochs, fencing,
static members, regular expressions, assignors, and requests that are refused."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.consumer_members import Member, Topics, compare, observe_consumer_group
from tests.common.definitions import Fields

pytestmark = pytest.mark.also_on("proxy")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", [0, 1])
def test_two_members_share_a_topic(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one = Member(topics, name, "one" if version else "", [name], version=version)
        two = Member(topics, name, "two" if version else "", [name], version=version)
        one.join("one joins")
        one.heartbeat("one lives")
        one.acknowledge("one acknowledges")
        observe_consumer_group(topics, name, "one", version)
        two.join("two joins")
        observe_consumer_group(topics, name, "two waits", version)
        two.heartbeat("two waits")
        one.heartbeat("one is told to give up")
        one.heartbeat("one is silent about it")
        one.heartbeat("one owns all still", topic_partitions=topics.rows({name: [0, 1, 2, 3]}))
        observe_consumer_group(topics, name, "one revokes", version)
        one.acknowledge("one has given up")
        one.heartbeat("one lives")
        two.heartbeat("two gets its share")
        two.acknowledge("two acknowledges")
        observe_consumer_group(topics, name, "stable", version)
        one.heartbeat(
            "a full request", rebalance_timeout_ms=60_000, subscribed_topic_names=[name], topic_partitions=[]
        )
        one.leave("one leaves")
        observe_consumer_group(topics, name, "one is gone", version)
        two.heartbeat("two gets all")
        two.acknowledge("two acknowledges")
        two.leave("two leaves")
        observe_consumer_group(topics, name, "empty", version)
        two.leave("two leaves again")
        two.heartbeat("two is gone")

    compare(pair, name, scenario)


def test_wrong_member_epochs(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)
        one, two = Member(topics, name, "one", [name]), Member(topics, name, "two", [name])
        one.heartbeat("no group", member_epoch=5)
        one.leave("no group")
        one.leave("no group, static", epoch=-2, instance_id="i")
        one.join()
        one.heartbeat("ahead", member_epoch=one.epoch + 1)
        two.heartbeat("a stranger", member_epoch=1)
        two.leave("a stranger leaves")
        two.join()
        one.acknowledge("told to revoke")
        previous = one.epoch
        one.acknowledge("revoked")
        one.heartbeat(
            "the epoch before, owning what it has",
            member_epoch=previous,
            topic_partitions=topics.rows(one.owned),
        )
        one.heartbeat("the epoch before, owning nothing", member_epoch=previous, topic_partitions=[])
        one.heartbeat("the epoch before, saying nothing", member_epoch=previous)
        one.heartbeat(
            "the epoch before, owning more",
            member_epoch=previous,
            topic_partitions=topics.rows({name: [0, 1]}),
        )
        one.heartbeat("two epochs before", member_epoch=1, topic_partitions=[])
        one.join("joins again")
        two.heartbeat("two after that")
        observe_consumer_group(topics, name)

    compare(pair, name, scenario)


INVALID: list[tuple[str, int, Fields]] = [
    ("no group", 1, {"group_id": ""}),
    ("a blank group", 1, {"group_id": " "}),
    ("no member id", 1, {"member_id": ""}),
    ("no member id, living", 0, {"member_id": "", "member_epoch": 1}),
    ("no member id, leaving", 0, {"member_id": "", "member_epoch": -1}),
    ("an empty instance", 1, {"instance_id": ""}),
    ("an empty rack", 1, {"rack_id": ""}),
    ("no timeout", 1, {"rebalance_timeout_ms": -1}),
    ("no partitions", 1, {"topic_partitions": None}),
    ("partitions", 1, {"topic_partitions": [{"topic_id": bytes(range(16)), "partitions": [1]}]}),
    ("no subscription", 1, {"subscribed_topic_names": None}),
    ("no subscription, version 0", 0, {"subscribed_topic_names": None}),
    ("static leave without an instance", 1, {"member_epoch": -2}),
    ("epoch -3", 1, {"member_epoch": -3}),
    ("an unknown assignor", 1, {"server_assignor": "nix"}),
    ("an assignor without a name", 1, {"server_assignor": ""}),
]


def test_invalid_requests(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name)
        for note, version, changes in INVALID:
            member = Member(topics, name, "m", [name], version=version)
            member.join(note, **changes)
        observe_consumer_group(topics, name)

    compare(pair, name, scenario)


def test_static_members(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one = Member(topics, name, "one", [name], instance="i1")
        two = Member(topics, name, "two", [name], instance="i2")
        one.join()
        two.join("two joins")
        one.acknowledge("one is told to revoke")
        one.acknowledge("one revokes")
        two.heartbeat("two gets its share")
        other = Member(topics, name, "other", [name], instance="i1")
        other.join("the instance is in use")
        other.heartbeat("fenced", member_epoch=one.epoch)
        other.heartbeat("unknown instance", member_epoch=1, instance_id="i9")
        other.leave("unknown instance", instance_id="i9")
        other.leave("fenced")
        other.leave("fenced, for a while", epoch=-2)
        one.join("the same, again")
        one.leave("for a while", epoch=-2)
        observe_consumer_group(topics, name, "one is away")
        one.heartbeat("away")
        other.join("returns as another")
        observe_consumer_group(topics, name, "one is back")
        other.acknowledge("lives")
        one.heartbeat("the old one", member_epoch=other.epoch)
        two.heartbeat("nothing happened to two")
        other.leave("for a while", epoch=-2)
        other.join("returns as the same")
        other.leave("for good")
        two.heartbeat("two gets all")
        two.acknowledge("two has all")
        observe_consumer_group(topics, name, "one is gone")

    compare(pair, name, scenario)


def test_subscriptions_change(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        first, second = f"{name}-a", f"{name}-b"
        topics.make(first, 2)
        topics.make(second, 2)
        one = Member(topics, name, "one", [first, second])
        two = Member(topics, name, "two", [second])
        one.join()
        two.join("two joins")
        one.acknowledge("one")
        one.acknowledge("one, revoked")
        two.heartbeat("two")
        observe_consumer_group(topics, name, "both")
        one.acknowledge("one drops a topic", subscribed_topic_names=[second])
        one.acknowledge("one, revoked")
        two.acknowledge("two")
        two.acknowledge("two, revoked")
        one.acknowledge("one")
        observe_consumer_group(topics, name, "the second only")
        one.acknowledge("one reads nothing", subscribed_topic_names=[])
        one.acknowledge("one, revoked")
        two.acknowledge("two")
        one.acknowledge("a topic that is not there", subscribed_topic_names=["nowhere"])
        observe_consumer_group(topics, name, "one reads nothing")
        one.heartbeat("another rack and client", rack_id="r1")
        one.heartbeat("nothing new", subscribed_topic_names=["nowhere"], rack_id="r1")
        observe_consumer_group(topics, name, "with a rack")

    compare(pair, name, scenario)


def test_topics_change(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)
        later = f"{name}-later"
        one = Member(topics, name, "one", [name, later])
        one.join()
        topics.make(later, 1)
        one.heartbeat_until(lambda response: response["assignment"] is not None, "a topic was made")
        grown = {"name": name, "count": 3, "assignments": None}
        session.call_unobserved(
            "CreatePartitions", 3, {"topics": [grown], "timeout_ms": 15_000, "validate_only": False}
        )
        one.heartbeat_until(lambda response: response["assignment"] is not None, "a topic has grown")
        observe_consumer_group(topics, name, "three and one")
        session.call_unobserved(
            "DeleteTopics", 6, {"topics": [{"name": later, "topic_id": bytes(16)}], "timeout_ms": 15_000}
        )
        one.heartbeat_until(lambda response: response["assignment"] is not None, "a topic was deleted")
        one.acknowledge()
        observe_consumer_group(topics, name, "three")

    compare(pair, name, scenario)


@pytest.mark.parametrize("first", ["range", "uniform"])
def test_assignors(pair: Pair, name: str, first: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 3)
        topics.make(f"{name}-b", 3)
        names = [name, f"{name}-b"]
        one = Member(topics, name, "a", names, assignor=first)
        two = Member(topics, name, "b", names, assignor=first)
        one.join()
        two.join("b joins")
        for _ in range(2):
            for member in (one, two):
                response = member.heartbeat_unobserved(topic_partitions=topics.rows(member.owned))
                member.take_assignment(response)
        shares = sorted(sum(len(rows) for rows in member.owned.values()) for member in (one, two))
        session.observe("shares", shares)
        if first == "range":
            session.observe("range", [one.owned, two.owned])
        response = observe_consumer_group(topics, name, "as they asked") if first == "range" else None
        session.observe("assignor", response and response["groups"][0]["assignor_name"])
        two.leave("b leaves")
        one.heartbeat("alone")
        one.take_assignment(one.heartbeat("has all", topic_partitions=topics.rows(one.owned)))
        one.heartbeat("another assignor", server_assignor="uniform" if first == "range" else "range")
        observe_consumer_group(topics, name, "another assignor")

    compare(pair, name, scenario)


def test_regular_expressions(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(f"{name}-a", 2)
        topics.make(f"{name}-b", 2)
        topics.make(f"x{name}", 1)
        # The uniform assignor would choose between the topics by the hashes of their ids.
        one = Member(topics, name, "one", regex=f"{name}-[a-z]", assignor="range")
        one.join("by expression")
        one.heartbeat_until(lambda response: bool(response["assignment"]), "resolved")
        one.acknowledge("has it")
        observe_consumer_group(topics, name, "by expression")
        two = Member(topics, name, "two", regex=f"{name}-[a-z]", assignor="range")
        two.join("the same expression, which is resolved")
        one.acknowledge("told to revoke")
        one.acknowledge("revoked")
        two.heartbeat("gets its share")
        observe_consumer_group(topics, name, "two by expression")
        two.heartbeat(
            "no expression any more", subscribed_topic_regex="", subscribed_topic_names=[f"x{name}"]
        )
        two.acknowledge("revoked")
        one.acknowledge("gets it")
        observe_consumer_group(topics, name, "one by name")
        one.heartbeat("both", subscribed_topic_names=[f"x{name}"])
        observe_consumer_group(topics, name, "both ways")
        one.heartbeat("empty", subscribed_topic_regex="", subscribed_topic_names=[])
        one.acknowledge("revoked")
        observe_consumer_group(topics, name, "nothing")

    compare(pair, name, scenario)


EXPRESSIONS = [
    "a(", "a)", "(?=a)", "(?P<x>a)", "\\Qa.b\\E", "a{1001}", "(?<x>a)", "\\1", "[", "[]", "*a", "a**", "a{2,1}",
    "\\C", "\\z", "\\Z", "(?i)FOO", "a\\", "[z-a]", "(?P<1 >a)", "(?z)a", "\\pX", "\\p{Greek}+", "[[:foo:]]", "a{,2}",
    "\\8", "(?P=x)", "x{2}{3}", "\\x{110000}", "(?", "(?>a)", "a++", "(?#c)", "\\Q\\C\\E", "\\\\C", "[\\C]", "^a$", " ",
]  # fmt: skip


def test_invalid_expressions(pair: Pair, name: str) -> None:
    """RE2/J's syntax errors, and its messages for them."""

    def scenario(session: Session, topics: Topics) -> None:
        for at, expression in enumerate(EXPRESSIONS):
            member = Member(topics, name, f"m{at}", regex=expression)
            member.join(f"`{expression}`")
            if member.epoch:
                member.leave()

    # Accepted members leave at once, so that the group's epochs are the same. For (?>a) see docs/differences.md.
    compare(pair, name, scenario)
