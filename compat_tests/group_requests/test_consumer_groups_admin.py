"""Administration of consumer groups on both targets: offsets, descriptions, configurations, the feature's level."""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import commit_body
from compat_tests.group_requests.consumer_members import Member, Topics, compare, observe_consumer_group
from tests.common.definitions import Fields

pytestmark = pytest.mark.also_on("proxy")

pytestmark = pytest.mark.slow


def test_offsets_of_members(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topic_id = topics.make(name, 3)
        one, two = Member(topics, name, "one", [name]), Member(topics, name, "two", [name])

        def commit(note: str, epoch: int, *, version: int = 9, member: str = "one", **fields: Any) -> None:
            rows: Any = {topic_id if version >= 10 else name: {0: 1, 1: 2, 2: 3}}
            body = commit_body(version, name, rows, epoch, member_id=member, **fields)
            session.call("OffsetCommit", version, body, note)

        def fetch(note: str, member: str | None, epoch: int) -> None:
            rows = [{"name": name, "partition_indexes": [0]}]
            group = {"group_id": name, "member_id": member, "member_epoch": epoch, "topics": rows}
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

    compare(pair, name, scenario)


def test_administration(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)

        def listed(note: str, **fields: Any) -> None:
            body: Fields = {"states_filter": [], "types_filter": []}
            rows = session.call_unobserved("ListGroups", 5, body | fields)
            session.observe(note, [row for row in rows["groups"] if row["group_id"] == name])

        for version in (0, 1):
            observe_consumer_group(topics, name, "not there", version)
            observe_consumer_group(topics, "", "no name", version)
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
        observe_consumer_group(topics, name, "without operations", include_authorized_operations=False)
        session.call("DeleteGroups", 2, {"groups_names": [name]}, "not empty")
        one.leave()
        listed("empty")
        session.call("DeleteGroups", 2, {"groups_names": [name]}, "empty")
        listed("deleted")
        observe_consumer_group(topics, name, "deleted")

    compare(pair, name, scenario)


def test_the_protocol_is_switched_off(pair: Pair, name: str) -> None:
    """With ``group.version`` 0 ApiVersions still lists the APIs, but they refuse every request."""

    def switch(session: Session, level: int) -> None:
        update = {
            "feature": "group.version",
            "max_version_level": level,
            "upgrade_type": 2 if level == 0 else 1,
        }
        response = session.call_unobserved(
            "UpdateFeatures", 1, {"timeout_ms": 15_000, "feature_updates": [update], "validate_only": False}
        )
        assert response["error_code"] == 0, response
        while True:
            versions = session.call_unobserved(
                "ApiVersions", 4, {"client_software_name": "a", "client_software_version": "1"}
            )
            found = {row["name"]: row["max_version_level"] for row in versions["finalized_features"]}
            if found.get("group.version", 0) == level:
                session.observe(
                    "supported", [r for r in versions["supported_features"] if r["name"] == "group.version"]
                )
                session.observe("finalized", found)
                return

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        switch(session, 1)
        switch(session, 0)
        one = Member(topics, name, "one", [name])
        one.join("switched off")
        one.join("switched off, invalid", group_id="")
        observe_consumer_group(topics, name, "switched off", group_ids=[name, "other"])
        switch(session, 1)
        one.join("switched on")

    compare(pair, name, scenario, known=(r"finalized: \.(share|streams)\.version",))


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
    """The values that a group's keys may have, Kafka's error messages for others, and DescribeConfigs."""

    def scenario(session: Session, topics: Topics) -> None:
        def alter(note: str, key: str, value: str | None, operation: int = 0, group: str = name) -> int:
            change = {"name": key, "config_operation": operation, "value": value}
            resource = {"resource_type": 32, "resource_name": group, "configs": [change]}
            response = session.call_unobserved(
                "IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False}
            )
            session.observe(note, response)
            session.observe(f"{note}: error message", [response["responses"][0]["error_message"]])
            return int(response["responses"][0]["error_code"])

        def described_configs(note: str, group: str, **fields: Any) -> Any:
            resource = {"resource_type": 32, "resource_name": group, "configuration_keys": None}
            response = session.call_unobserved("DescribeConfigs", 4, {"resources": [resource], **fields})
            (result,) = response["results"]
            result["configs"] = {row["name"]: row for row in result["configs"]}
            session.observe(note, result)
            return result["configs"]

        accepted: dict[str, str] = {}
        for key, value in GROUP_KEYS:
            if alter(f"{key}={value}", key, value) == 0:
                accepted[key] = value
        alter("append", "consumer.session.timeout.ms", "1", operation=2)
        alter("no group", "consumer.session.timeout.ms", "50000", group="")
        while True:
            rows = described_configs("described", name, include_synonyms=True)
            if all(rows[key]["value"] == value for key, value in accepted.items()):
                break
            session.observations.pop()
        described_configs("a group that is not there", f"{name}-other", include_synonyms=True)
        described_configs("no name", "")
        alter("deleted", "share.isolation.level", None, operation=1)
        response = session.call_unobserved(
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
        session.observe("by the old API", response)
        while True:
            rows = described_configs("described again", name)
            if rows["consumer.heartbeat.interval.ms"]["value"] == "7000":
                break
            session.observations.pop()

    compare(pair, name, scenario)
