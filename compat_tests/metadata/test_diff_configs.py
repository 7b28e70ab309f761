"""DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, DescribeLogDirs, FindCoordinator, UpdateFeatures."""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from tests.common import facts
from tests.common.batches import WAIT_MS, batch, now_ms
from tests.common.definitions import Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NODE_ID = "1"


def describe(
    session: Session, version: int, kind: int, name: str, keys: list[str] | None = None, **fields: Any
) -> Any:
    """A DescribeConfigs response with its rows by key, and with "documented" for any documentation."""
    values = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        **fields,
    }
    response = session.call_unobserved("DescribeConfigs", version, values)
    for result in response["results"] if isinstance(response, dict) else ():
        result["configs"] = {row["name"]: row for row in result["configs"]}
        for row in result["configs"].values():
            if row.get("documentation"):
                row["documentation"] = "documented"
    return response


@pytest.mark.parametrize("version", versions_of("DescribeConfigs"))
def test_topic_configs(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(
            name,
            configs={"retention.ms": "5000", "cleanup.policy": "compact,delete", "compression.type": "lz4"},
        )
        fields: Fields = {}
        for synonyms in (False, True):
            fields["include_synonyms"] = synonyms
            if version >= 3:
                fields["include_documentation"] = synonyms
            session.observe(f"all, {synonyms}", describe(session, version, TOPIC, name, **fields))
        session.observe(
            "some", describe(session, version, TOPIC, name, ["retention.ms", "no.such.key"], **fields)
        )
        session.observe("none", describe(session, version, TOPIC, name, [], **fields))
        session.observe("unknown", describe(session, version, TOPIC, f"{name}-unknown"))
        session.observe("invalid", describe(session, version, TOPIC, "a b"))
        session.observe("no topic", describe(session, version, TOPIC, ""))

    pair.compare(scenario)


@pytest.mark.parametrize("version", [1, 4])
def test_other_resources(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        for kind, name in ((BROKER, "9"), (BROKER, "x"), (0, "a"), (1, "a"), (3, "a"), (BROKER_LOGGER, "9")):
            session.observe(f"{kind} {name}", describe(session, version, kind, name))
        session.call("DescribeConfigs", version, {"resources": []})

    pair.compare(scenario)


def test_cluster_wide_configs(pair: Pair) -> None:
    """A broker's own rows are in test_diff_broker_configs.py."""

    def scenario(session: Session) -> None:
        session.observe("cluster wide", describe(session, 4, BROKER, "", include_synonyms=True))

    pair.compare(scenario)


def alter(
    session: Session, version: int, name: str, note: str, *changes: tuple[str, int, str | None], **fields: Any
) -> Any:
    """An IncrementalAlterConfigs response for a topic, observed; `changes` are key, operation, value."""
    rows = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": rows, **fields.pop("resource", {})}
    return session.call("IncrementalAlterConfigs", version, {"resources": [resource], **fields}, note)


def wait_for_overrides(session: Session, name: str, expected: dict[str, str]) -> None:
    """Wait until the topic has these overrides: Kafka's broker learns of them from the controller."""
    deadline = now_ms() + WAIT_MS
    while True:
        rows = describe(session, 4, TOPIC, name)["results"][0]["configs"].values()
        found = {row["name"]: row["value"] for row in rows if row["config_source"] == 1}
        if found == expected:
            return
        assert now_ms() < deadline, found


@pytest.mark.parametrize("version", versions_of("IncrementalAlterConfigs"))
def test_incremental_alter_configs(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, configs={"retention.ms": "5000"})
        response = alter(
            session, version, name, "set", ("retention.ms", SET, "6000"), ("segment.bytes", SET, "2000000")
        )
        assert response["responses"][0]["error_code"] == 0
        wait_for_overrides(session, name, {"retention.ms": "6000", "segment.bytes": "2000000"})
        alter(session, version, name, "only validated", ("retention.ms", SET, "1"), validate_only=True)
        alter(session, version, name, "delete", ("retention.ms", DELETE, None))
        alter(session, version, name, "delete what is not set", ("flush.ms", DELETE, None))
        alter(session, version, name, "append to a list", ("cleanup.policy", APPEND, "compact"))
        wait_for_overrides(session, name, {"segment.bytes": "2000000", "cleanup.policy": "delete,compact"})
        alter(session, version, name, "append it again", ("cleanup.policy", APPEND, "compact"))
        alter(session, version, name, "subtract", ("cleanup.policy", SUBTRACT, "delete"))
        alter(session, version, name, "subtract what is not there", ("cleanup.policy", SUBTRACT, "delete"))
        wait_for_overrides(session, name, {"segment.bytes": "2000000", "cleanup.policy": "compact"})
        alter(session, version, name, "append to a number", ("retention.ms", APPEND, "1"))
        alter(session, version, name, "unknown key", ("no.such.key", SET, "1"))
        alter(session, version, name, "delete an unknown key", ("no.such.key", DELETE, None))
        alter(session, version, name, "not a number", ("retention.ms", SET, "soon"))
        alter(session, version, name, "null", ("retention.ms", SET, None))
        alter(session, version, name, "one of two", ("retention.ms", SET, "7"), ("flush.ms", SET, "x"))
        alter(session, version, name, "twice", ("retention.ms", SET, "7"), ("retention.ms", SET, "8"))
        alter(session, version, name, "nothing")
        alter(session, version, f"{name}-unknown", "unknown topic", ("retention.ms", SET, "1"))
        alter(session, version, "", "no topic", ("retention.ms", SET, "1"))
        alter(
            session, version, name, "unknown type", ("retention.ms", SET, "1"), resource={"resource_type": 1}
        )
        alter(
            session,
            version,
            "9",
            "other broker",
            ("log.retention.ms", SET, "1"),
            resource={"resource_type": BROKER},
        )
        session.call("IncrementalAlterConfigs", version, {"resources": []}, "no resource")
        resource = {"resource_type": TOPIC, "resource_name": name, "configs": []}
        session.call(
            "IncrementalAlterConfigs", version, {"resources": [resource, resource]}, "a resource twice"
        )
        wait_for_overrides(session, name, {"segment.bytes": "2000000", "cleanup.policy": "compact"})

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("AlterConfigs"))
def test_alter_configs(pair: Pair, name: str, version: int) -> None:
    """AlterConfigs, the older API, replaces all overrides."""

    def scenario(session: Session) -> None:
        session.topic(name, configs={"retention.ms": "5000", "flush.ms": "10"})

        def replace(note: str, configs: dict[str, str | None], topic: str = name, **fields: Any) -> Any:
            rows = [{"name": key, "value": value} for key, value in configs.items()]
            resource = {"resource_type": TOPIC, "resource_name": topic, "configs": rows}
            return session.call("AlterConfigs", version, {"resources": [resource], **fields}, note)

        replace("one", {"retention.ms": "7000"})
        wait_for_overrides(session, name, {"retention.ms": "7000"})
        replace("only validated", {"flush.ms": "1"}, validate_only=True)
        replace("unknown key", {"no.such.key": "1"})
        replace("not a number", {"retention.ms": "x"})
        replace("null", {"retention.ms": None})
        replace("unknown topic", {"retention.ms": "1"}, f"{name}-unknown")
        wait_for_overrides(session, name, {"retention.ms": "7000"})
        replace("none", {})
        wait_for_overrides(session, name, {})

    pair.compare(scenario)


@pytest.mark.parametrize("kind", ["node", "cluster"])
def test_dynamic_broker_configs(pair: Pair, name: str, kind: str) -> None:
    node = NODE_ID if kind == "node" else ""

    def scenario(session: Session) -> None:
        def change(note: str, key: str, operation: int, value: str | None) -> Any:
            row = {"name": key, "config_operation": operation, "value": value}
            resource = {"resource_type": BROKER, "resource_name": node, "configs": [row]}
            return session.call("IncrementalAlterConfigs", 1, {"resources": [resource]}, note)

        def wait_for(value: str | None) -> None:
            deadline = now_ms() + WAIT_MS
            while True:
                rows = describe(session, 4, BROKER, NODE_ID, ["log.retention.ms"], include_synonyms=True)[
                    "results"
                ][0]
                if rows["configs"]["log.retention.ms"]["value"] == value:
                    session.observe(f"is {value}", rows["configs"])
                    return
                assert now_ms() < deadline, rows

        change("read-only", "log.dirs", SET, "/tmp/x")
        change("not a number", "log.retention.ms", SET, "x")
        change("set", "log.retention.ms", SET, "123456")
        wait_for("123456")
        session.topic(name)
        rows = describe(session, 4, TOPIC, name, ["retention.ms"], include_synonyms=True)
        session.observe("a topic's", rows["results"][0]["configs"])
        change("delete", "log.retention.ms", DELETE, None)
        wait_for(None)

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("DescribeLogDirs"))
def test_describe_log_dirs(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)
        session.produce(name, batch(3), partition=1)

        def ask(note: str, *topics: tuple[str, list[int]]) -> None:
            rows = [{"topic": topic, "partitions": partitions} for topic, partitions in topics]
            response = session.call_unobserved("DescribeLogDirs", version, {"topics": rows})
            (directory,) = response["results"]
            assert directory.pop("log_dir").startswith("/")
            assert directory.pop("total_bytes", 1) >= directory.pop("usable_bytes", 1) > 0
            for topic in directory["topics"]:
                topic["partitions"].sort(key=lambda row: row["partition_index"])
            session.observe(note, response)

        ask("both", (name, [0, 1]))
        ask("one", (name, [1]))
        ask("unknown", (f"{name}-unknown", [0]))
        ask("unknown partition", (name, [9]))
        ask("none")
        response = session.call_unobserved("DescribeLogDirs", version, {"topics": None})
        own = [topic for row in response["results"] for topic in row["topics"] if topic["name"] == name]
        session.observe("all", sorted(row["partition_size"] for topic in own for row in topic["partitions"]))

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("FindCoordinator"))
def test_find_coordinator_with_an_unknown_key_type(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        for kind in (3, 7, -1):
            values: Fields = {"coordinator_keys": ["a"]} if version >= 4 else {"key": "a"}
            if version >= 1:
                values["key_type"] = kind
                session.call("FindCoordinator", version, values, f"type {kind}")

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("UpdateFeatures"))
def test_update_features(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        def update(note: str, name: str, level: int, **fields: Any) -> None:
            row: Fields = {"feature": name, "max_version_level": level, **fields}
            session.call("UpdateFeatures", version, {"feature_updates": [row], "timeout_ms": 10000}, note)

        session.call("UpdateFeatures", version, {"feature_updates": [], "timeout_ms": 10000}, "nothing")
        update("unknown", "no.such.feature", 1)
        update("too high", "metadata.version", 32000)
        update("as it is", "metadata.version", facts.METADATA_VERSION)
        update("no name", "", 1)

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("ListConfigResources"))
def test_list_config_resources(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, configs={"flush.ms": "5"})
        response = session.call_unobserved(
            "ListConfigResources", version, {"resource_types": [TOPIC]} if version else {}
        )
        rows = response.pop("config_resources")
        session.observe("topics", [row for row in rows if row["resource_name"] == name])
        session.observe("response", response)
        if version:
            response = session.call_unobserved("ListConfigResources", version, {"resource_types": [BROKER]})
            session.observe("brokers", sorted(row["resource_name"] for row in response["config_resources"]))
            session.call("ListConfigResources", version, {"resource_types": [CLIENT_METRICS]}, "metrics")
            session.call("ListConfigResources", version, {"resource_types": [3]}, "no such type")

    pair.compare(scenario)


def test_config_resources_of_every_type(pair: Pair, name: str) -> None:
    """A group and a subscription to metrics of clients are listed as long as they have a configuration."""
    own = {CLIENT_METRICS: "interval.ms", GROUP: "consumer.heartbeat.interval.ms"}

    def scenario(session: Session) -> None:
        def listed(*types: int) -> Fields:
            """The response with this test's resources, and those of nodes."""
            response = session.call_unobserved("ListConfigResources", 1, {"resource_types": [*types]})
            rows = [(row["resource_type"], row["resource_name"]) for row in response["config_resources"]]
            rows = [row for row in rows if row[1] == name or row[0] in (BROKER, BROKER_LOGGER)]
            return {**response, "config_resources": sorted(rows)}

        def change(operation: int, value: str | None) -> None:
            for kind, key in own.items():
                configs = [{"name": key, "config_operation": operation, "value": value}]
                resource = {"resource_type": kind, "resource_name": name, "configs": configs}
                response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
                assert response["responses"][0]["error_code"] == 0, response
            rows = [(kind, name) for kind in own] if operation == SET else []
            deadline = now_ms() + 60_000
            while listed(*own)["config_resources"] != rows:  # Kafka's broker learns of it a moment later
                assert now_ms() < deadline

        session.topic(name)
        session.observe("nothing yet", listed())
        change(SET, "6000")
        every = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
        for types in ((), every, *((one,) for one in every), (GROUP, TOPIC), (GROUP, GROUP)):
            session.observe(f"types {types}", listed(*types))
        for wrong in (0, 1, 3, 64, -1):
            session.observe(f"type {wrong}", listed(wrong))
            session.observe(f"groups, and type {wrong}", listed(GROUP, wrong))
        change(DELETE, None)
        session.observe("nothing any more", listed())

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("DescribeQuorum"))
def test_describe_quorum(pair: Pair, name: str, version: int) -> None:
    def request(*topics: tuple[str, list[int]]) -> Fields:
        rows = [
            {"topic_name": topic, "partitions": [{"partition_index": at} for at in found]}
            for topic, found in topics
        ]
        return {"topics": rows}

    def scenario(session: Session) -> None:
        metadata = "__cluster_metadata"
        for values in (
            request(),
            request((name, [0])),
            request((metadata, [])),
            request((metadata, [1])),
            request((metadata, [0, 1])),
            request((metadata, [0]), (name, [0])),
        ):
            session.call("DescribeQuorum", version, values, str(values))
        response = session.call_unobserved("DescribeQuorum", version, request((metadata, [0])))
        [partition] = response["topics"][0]["partitions"]
        [voter] = partition["current_voters"]
        session.observe("grows", partition.pop("leader_epoch") > 0 and partition.pop("high_watermark") > 0)
        session.observe("caught up", voter.pop("log_end_offset") > 0)
        for key in ("last_fetch_timestamp", "last_caught_up_timestamp"):
            if key in voter:
                session.observe(key, voter.pop(key) > 1_700_000_000_000)
        for row in response.get("nodes", []):
            del row["listeners"]  # oncelog's controller has none that clients can reach
        session.observe("response", response)

    pair.compare(scenario)
