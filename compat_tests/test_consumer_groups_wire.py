"""Groups of the consumer protocol on both targets, field by field: joins, acknowledgements, epochs, fencing, static
members, expressions, assignors, what is refused and what administrators are shown (KIP-848)."""

from typing import Any

import pytest

from compat_tests.consumer_members import Member, Topics, described, run
from compat_tests.definitions import Fields
from compat_tests.differential import Pair, Session
from compat_tests.test_diff_committed_offsets import commit_body

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", [0, 1])
def test_two_members_share_a_topic(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one = Member(topics, name, "one" if version else "", [name], version=version)
        two = Member(topics, name, "two" if version else "", [name], version=version)
        one.join("one joins")
        one.beat("one lives")
        one.acknowledge("one acknowledges")
        described(topics, name, "one", version)
        two.join("two joins")
        described(topics, name, "two waits", version)
        two.beat("two waits")
        one.beat("one is told to give up")
        one.beat("one is silent about it")
        one.beat("one owns all still", topic_partitions=topics.rows({name: [0, 1, 2, 3]}))
        described(topics, name, "one revokes", version)
        one.acknowledge("one has given up")
        one.beat("one lives")
        two.beat("two gets its share")
        two.acknowledge("two acknowledges")
        described(topics, name, "stable", version)
        one.beat(
            "a full request", rebalance_timeout_ms=60_000, subscribed_topic_names=[name], topic_partitions=[]
        )
        one.leave("one leaves")
        described(topics, name, "one is gone", version)
        two.beat("two gets all")
        two.acknowledge("two acknowledges")
        two.leave("two leaves")
        described(topics, name, "empty", version)
        two.leave("two leaves again")
        two.beat("two is gone")

    run(pair, name, scenario)


def test_epochs_that_are_not_the_members(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)
        one, two = Member(topics, name, "one", [name]), Member(topics, name, "two", [name])
        one.beat("no group", member_epoch=5)
        one.leave("no group")
        one.leave("no group, static", epoch=-2, instance_id="i")
        one.join()
        one.beat("ahead", member_epoch=one.epoch + 1)
        two.beat("a stranger", member_epoch=1)
        two.leave("a stranger leaves")
        two.join()
        one.acknowledge("told to revoke")
        previous = one.epoch
        one.acknowledge("revoked")
        one.beat(
            "the epoch before, owning what it has",
            member_epoch=previous,
            topic_partitions=topics.rows(one.owned),
        )
        one.beat("the epoch before, owning nothing", member_epoch=previous, topic_partitions=[])
        one.beat("the epoch before, saying nothing", member_epoch=previous)
        one.beat(
            "the epoch before, owning more",
            member_epoch=previous,
            topic_partitions=topics.rows({name: [0, 1]}),
        )
        one.beat("two epochs before", member_epoch=1, topic_partitions=[])
        one.join("joins again")
        two.beat("two after that")
        described(topics, name)

    run(pair, name, scenario)


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
    ("an assignor that is none", 1, {"server_assignor": "nix"}),
    ("an assignor without a name", 1, {"server_assignor": ""}),
]


def test_invalid_requests(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name)
        for note, version, changes in INVALID:
            member = Member(topics, name, "m", [name], version=version)
            member.join(note, **changes)
        described(topics, name)

    run(pair, name, scenario)


def test_static_members(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one = Member(topics, name, "one", [name], instance="i1")
        two = Member(topics, name, "two", [name], instance="i2")
        one.join()
        two.join("two joins")
        one.acknowledge("one is told to revoke")
        one.acknowledge("one revokes")
        two.beat("two gets its share")
        other = Member(topics, name, "other", [name], instance="i1")
        other.join("the instance is in use")
        other.beat("fenced", member_epoch=one.epoch)
        other.beat("unknown instance", member_epoch=1, instance_id="i9")
        other.leave("unknown instance", instance_id="i9")
        other.leave("fenced")
        other.leave("fenced, for a while", epoch=-2)
        one.join("the same, again")
        one.leave("for a while", epoch=-2)
        described(topics, name, "one is away")
        one.beat("away")
        other.join("returns as another")
        described(topics, name, "one is back")
        other.acknowledge("lives")
        one.beat("the old one", member_epoch=other.epoch)
        two.beat("nothing happened to two")
        other.leave("for a while", epoch=-2)
        other.join("returns as the same")
        other.leave("for good")
        two.beat("two gets all")
        two.acknowledge("two has all")
        described(topics, name, "one is gone")

    run(pair, name, scenario)


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
        two.beat("two")
        described(topics, name, "both")
        one.acknowledge("one drops a topic", subscribed_topic_names=[second])
        one.acknowledge("one, revoked")
        two.acknowledge("two")
        two.acknowledge("two, revoked")
        one.acknowledge("one")
        described(topics, name, "the second only")
        one.acknowledge("one reads nothing", subscribed_topic_names=[])
        one.acknowledge("one, revoked")
        two.acknowledge("two")
        one.acknowledge("a topic that is not there", subscribed_topic_names=["nowhere"])
        described(topics, name, "one reads nothing")
        one.beat("another rack and client", rack_id="r1")
        one.beat("nothing new", subscribed_topic_names=["nowhere"], rack_id="r1")
        described(topics, name, "with a rack")

    run(pair, name, scenario)


def test_topics_change(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)
        later = f"{name}-later"
        one = Member(topics, name, "one", [name, later])
        one.join()
        topics.make(later, 1)
        one.until(lambda answer: answer["assignment"] is not None, "a topic was made")
        grown = {"name": name, "count": 3, "assignments": None}
        session.quiet(
            "CreatePartitions", 3, {"topics": [grown], "timeout_ms": 15_000, "validate_only": False}
        )
        one.until(lambda answer: answer["assignment"] is not None, "a topic has grown")
        described(topics, name, "three and one")
        session.quiet(
            "DeleteTopics", 6, {"topics": [{"name": later, "topic_id": bytes(16)}], "timeout_ms": 15_000}
        )
        one.until(lambda answer: answer["assignment"] is not None, "a topic was deleted")
        one.acknowledge()
        described(topics, name, "three")

    # A deleted topic's id has no name any more; when Kafka tells its coordinator of it is a matter of chance.
    run(pair, name, scenario)


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
                answer = member.quiet(topic_partitions=topics.rows(member.owned))
                member.take(answer)
        shares = sorted(sum(len(rows) for rows in member.owned.values()) for member in (one, two))
        session.remember("shares", shares)
        if first == "range":
            session.remember("range", [one.owned, two.owned])
        answer = described(topics, name, "as they asked") if first == "range" else None
        session.remember("assignor", answer and answer["groups"][0]["assignor_name"])
        one.beat("another assignor", server_assignor="uniform" if first == "range" else "range")

    run(pair, name, scenario)


def test_expressions(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(f"{name}-a", 2)
        topics.make(f"{name}-b", 2)
        topics.make(f"x{name}", 1)
        # Uniform would give away one topic or the other, by the hash of its id.
        one = Member(topics, name, "one", regex=f"{name}-[a-z]", assignor="range")
        one.join("by expression")
        one.until(lambda answer: bool(answer["assignment"]), "resolved")
        one.acknowledge("has it")
        described(topics, name, "by expression")
        two = Member(topics, name, "two", regex=f"{name}-[a-z]", assignor="range")
        two.join("the same expression, which is resolved")
        one.acknowledge("told to revoke")
        one.acknowledge("revoked")
        two.beat("gets its share")
        described(topics, name, "two by expression")
        two.beat("no expression any more", subscribed_topic_regex="", subscribed_topic_names=[f"x{name}"])
        two.acknowledge("revoked")
        one.acknowledge("gets it")
        described(topics, name, "one by name")
        one.beat("both", subscribed_topic_names=[f"x{name}"])
        described(topics, name, "both ways")
        one.beat("empty", subscribed_topic_regex="", subscribed_topic_names=[])
        one.acknowledge("revoked")
        described(topics, name, "nothing")

    run(pair, name, scenario)


EXPRESSIONS = [
    "a(", "a)", "(?=a)", "(?P<x>a)", "\\Qa.b\\E", "a{1001}", "(?<x>a)", "\\1", "[", "[]", "*a", "a**", "a{2,1}",
    "\\C", "\\z", "\\Z", "(?i)FOO", "a\\", "[z-a]", "(?P<1 >a)", "(?z)a", "\\pX", "\\p{Greek}+", "[[:foo:]]", "a{,2}",
    "\\8", "(?P=x)", "x{2}{3}", "\\x{110000}", "(?", "(?>a)", "a++", "(?#c)", "\\Q\\C\\E", "\\\\C", "[\\C]", "^a$", " ",
]  # fmt: skip


def test_what_is_an_expression(pair: Pair, name: str) -> None:
    """RE2/J's refusals, and its words for them."""

    def scenario(session: Session, topics: Topics) -> None:
        for at, expression in enumerate(EXPRESSIONS):
            member = Member(topics, name, f"m{at}", regex=expression)
            member.join(f"`{expression}`")
            if member.epoch:
                member.leave()

    # The order of joins rules the epochs: all members that were accepted leave at once. (?>a): see differences.
    run(pair, name, scenario)


def test_offsets_of_members(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topic_id = topics.make(name, 3)
        one, two = Member(topics, name, "one", [name]), Member(topics, name, "two", [name])

        def commit(note: str, epoch: int, *, version: int = 9, member: str = "one", **fields: Any) -> None:
            rows: Any = {topic_id if version >= 10 else name: {0: 1, 1: 2, 2: 3}}
            body = commit_body(version, name, rows, epoch, member_id=member, **fields)
            session.call("OffsetCommit", version, body, note)

        def fetch(note: str, member: str | None, epoch: int) -> None:
            wanted = [{"name": name, "partition_indexes": [0]}]
            group = {"group_id": name, "member_id": member, "member_epoch": epoch, "topics": wanted}
            session.call("OffsetFetch", 9, {"groups": [group]}, note)

        one.join()
        for version in (5, 8, 9, 10):
            commit("in time", one.epoch, version=version)
        commit("no member", -1, member="")
        commit("a stranger", one.epoch, member="nobody")
        commit("ahead", one.epoch + 1)
        commit("before it joined", one.epoch - 1)
        commit("epoch 0", 0)
        fetch("in time", "one", one.epoch)
        fetch("ahead", "one", one.epoch + 1)
        fetch("behind", "one", one.epoch - 1)
        fetch("a stranger", "nobody", 1)
        fetch("an administrator", None, -1)
        fetch("no name", "", -1)
        two.join()
        before = one.epoch
        one.acknowledge("told to revoke")
        commit("while revoking", one.epoch)
        one.acknowledge("revoked")
        commit("with the epoch before", before)
        commit("with the epoch before", before, version=10)
        commit("two has nothing", two.epoch, member="two")
        two.acknowledge("two has some")
        commit("two commits", two.epoch, member="two")
        commit("two, behind", two.epoch - 1, member="two")
        session.call(
            "OffsetDelete",
            0,
            {"group_id": name, "topics": [{"name": name, "partitions": [{"partition_index": 0}]}]},
            "subscribed",
        )
        one.leave()
        two.leave()
        commit("no member, empty", -1, member="")
        commit("a member, empty", 3)
        session.call(
            "OffsetDelete",
            0,
            {"group_id": name, "topics": [{"name": name, "partitions": [{"partition_index": 0}]}]},
            "not subscribed",
        )

    run(pair, name, scenario)


def test_administration(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)

        def listed(note: str, **fields: Any) -> None:
            body: Fields = {"states_filter": [], "types_filter": []}
            rows = session.quiet("ListGroups", 5, body | fields)
            session.remember(note, [row for row in rows["groups"] if row["group_id"] == name])

        for version in (0, 1):
            described(topics, name, "not there", version)
            described(topics, "", "no name", version)
        one = Member(topics, name, "one", [name])
        one.join()
        listed("all")
        listed("consumer", types_filter=["consumer"])
        listed("Consumer", types_filter=["Consumer"])
        listed("classic", types_filter=["classic"])
        listed("stable", states_filter=["Stable"])
        listed("empty", states_filter=["Empty"])
        session.call("DescribeGroups", 6, {"groups": [name]}, "by the classic API")
        session.call("DescribeGroups", 5, {"groups": [name]}, "by the classic API")
        described(topics, name, "without operations", include_authorized_operations=False)
        session.call("DeleteGroups", 2, {"groups_names": [name]}, "not empty")
        one.leave()
        listed("empty")
        session.call("DeleteGroups", 2, {"groups_names": [name]}, "empty")
        listed("deleted")
        described(topics, name, "deleted")

    run(pair, name, scenario)


def test_the_protocol_is_switched_off(pair: Pair, name: str) -> None:
    """``group.version`` 0: the APIs are announced still, and refuse."""

    def switch(session: Session, level: int) -> None:
        update = {
            "feature": "group.version",
            "max_version_level": level,
            "upgrade_type": 2 if level == 0 else 1,
        }
        answer = session.quiet(
            "UpdateFeatures", 1, {"timeout_ms": 15_000, "feature_updates": [update], "validate_only": False}
        )
        assert answer["error_code"] == 0, answer
        while True:
            versions = session.quiet(
                "ApiVersions", 4, {"client_software_name": "a", "client_software_version": "1"}
            )
            found = {row["name"]: row["max_version_level"] for row in versions["finalized_features"]}
            if found.get("group.version", 0) == level:
                session.remember(
                    "supported", [r for r in versions["supported_features"] if r["name"] == "group.version"]
                )
                session.remember("finalized", found)
                return

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        switch(session, 1)
        switch(session, 0)
        one = Member(topics, name, "one", [name])
        one.join("switched off")
        one.join("switched off, invalid", group_id="")
        described(topics, name, "switched off", group_ids=[name, "other"])
        switch(session, 1)
        one.join("switched on")

    run(pair, name, scenario, known=(r"finalized: \.(share|streams)\.version",))


GROUP_KEYS: list[tuple[str, str]] = [
    ("consumer.session.timeout.ms", "50000"),
    ("consumer.session.timeout.ms", "44999"),
    ("consumer.session.timeout.ms", "60001"),
    ("consumer.session.timeout.ms", "x"),
    ("consumer.session.timeout.ms", "0"),
    ("consumer.heartbeat.interval.ms", "6000"),
    ("consumer.heartbeat.interval.ms", "4999"),
    ("consumer.heartbeat.interval.ms", "15001"),
    ("consumer.assignment.interval.ms", "-1"),
    ("consumer.assignment.interval.ms", "15001"),
    ("consumer.assignment.interval.ms", "2"),
    ("share.session.timeout.ms", "1"),
    ("share.record.lock.duration.ms", "14999"),
    ("share.delivery.count.limit", "11"),
    ("share.delivery.count.limit", "1"),
    ("share.partition.max.record.locks", "4001"),
    ("share.auto.offset.reset", "earliest"),
    ("share.auto.offset.reset", "by_duration:PT1H"),
    ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
    ("share.auto.offset.reset", "by_duration:P"),
    ("share.auto.offset.reset", "by_duration:PT"),
    ("share.auto.offset.reset", "by_duration:-PT1H"),
    ("share.auto.offset.reset", "none"),
    ("share.isolation.level", "read_committed"),
    ("share.isolation.level", "READ_COMMITTED"),
    ("share.renew.acknowledge.enable", "false"),
    ("share.renew.acknowledge.enable", "no"),
    ("streams.num.standby.replicas", "3"),
    ("streams.num.standby.replicas", "1"),
    ("streams.session.timeout.ms", "60001"),
    ("streams.initial.rebalance.delay.ms", "5"),
    ("nix", "1"),
]


def test_group_configs(pair: Pair, name: str) -> None:
    """Which values a group may have, in Kafka's words, and what is shown of them."""

    def scenario(session: Session, topics: Topics) -> None:
        def alter(note: str, key: str, value: str | None, operation: int = 0, group: str = name) -> int:
            change = {"name": key, "config_operation": operation, "value": value}
            resource = {"resource_type": 32, "resource_name": group, "configs": [change]}
            answer = session.quiet(
                "IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False}
            )
            session.remember(note, answer)
            session.remember(f"{note}: its text", [answer["responses"][0]["error_message"]])
            return int(answer["responses"][0]["error_code"])

        def described_configs(note: str, group: str, **fields: Any) -> Any:
            resource = {"resource_type": 32, "resource_name": group, "configuration_keys": None}
            answer = session.quiet("DescribeConfigs", 4, {"resources": [resource], **fields})
            (result,) = answer["results"]
            result["configs"] = {row["name"]: row for row in result["configs"]}
            session.remember(note, result)
            return result["configs"]

        wanted: dict[str, str] = {}
        for key, value in GROUP_KEYS:
            if alter(f"{key}={value}", key, value) == 0:
                wanted[key] = value
        alter("append", "consumer.session.timeout.ms", "1", operation=2)
        alter("no group", "consumer.session.timeout.ms", "50000", group="")
        while True:
            rows = described_configs("described", name, include_synonyms=True)
            if all(rows[key]["value"] == value for key, value in wanted.items()):
                break
            session.trace.pop()
        described_configs("a group that is not there", f"{name}-other", include_synonyms=True)
        described_configs("no name", "")
        alter("deleted", "share.isolation.level", None, operation=1)
        answer = session.quiet(
            "AlterConfigs",
            2,
            {
                "resources": [
                    {
                        "resource_type": 32,
                        "resource_name": name,
                        "configs": [{"name": "consumer.heartbeat.interval.ms", "value": "7000"}],
                    }
                ],
                "validate_only": False,
            },
        )
        session.remember("by the old API", answer)
        while True:
            rows = described_configs("described again", name)
            if rows["consumer.heartbeat.interval.ms"]["value"] == "7000":
                break
            session.trace.pop()

    run(pair, name, scenario)
