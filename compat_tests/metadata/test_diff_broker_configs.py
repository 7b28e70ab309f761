"""Every row of a broker's configuration on both targets, which are started with the same settings."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers import UNDISTURBED, Broker, make_broker
from compat_tests.differential import Pair, Session
from compat_tests.on_demand import OnDemand
from tests.common import facts
from tests.common.batches import GZIP, WAIT_MS, batch, now_ms, record
from tests.common.definitions import Fields
from tests.common.real_kafka import PROPERTIES
from tests.common.recorded.recorder import Recorder

pytestmark = pytest.mark.also_on("proxy")

BROKER, GROUP = 4, 32
SET, DELETE, APPEND = 0, 1, 2
NODE_ID = "1"

# The settings of both brokers: keys with and without effect, keys of listeners and plug-ins, removed keys; limits of
# share and streams groups that are not the defaults.
SETTINGS = {
    **PROPERTIES,
    **UNDISTURBED,
    "num.partitions": "3",
    "log.retention.minutes": "7",
    "log.cleaner.io.max.bytes.per.second": "1e6",
    "num.io.threads": "4",
    "metric.reporters": "",
    "super.users": "User:a",
    "ssl.keystore.password": "secret",
    "sasl.jaas.config": "secret",
    "listener.name.a.ssl.keystore.password": "secret",
    "listener.name.a.connections.max.idle.ms": "7",
    "zookeeper.connect": "secret:1",
    "rlmm.config.a": "b",
    "leader.replication.throttled.rate": "5",
    "unstable.feature.versions.enable": "false",
    "group.share.min.session.timeout.ms": "40000",
    "group.share.session.timeout.ms": "50000",
    "group.share.max.session.timeout.ms": "55000",
    "group.share.min.heartbeat.interval.ms": "3000",
    "group.share.max.heartbeat.interval.ms": "14000",
    "group.share.min.record.lock.duration.ms": "20000",
    "group.share.max.record.lock.duration.ms": "50000",
    "group.share.min.delivery.count.limit": "3",
    "group.share.max.delivery.count.limit": "9",
    "group.share.min.partition.max.record.locks": "200",
    "group.share.max.partition.max.record.locks": "3000",
    "group.share.min.assignment.interval.ms": "500",
    "group.share.max.assignment.interval.ms": "2000",
    "group.streams.min.session.timeout.ms": "40000",
    "group.streams.max.session.timeout.ms": "55000",
    "group.streams.min.heartbeat.interval.ms": "3000",
    "group.streams.max.heartbeat.interval.ms": "14000",
    "group.streams.max.standby.replicas": "4",
    "group.streams.num.standby.replicas": "1",
    "group.streams.min.assignment.interval.ms": "500",
    "group.streams.max.assignment.interval.ms": "2000",
}

VALUE_FIELDS = ("config_source", "synonyms", "value")
# Dynamic in Kafka. In oncelog a change would have no effect: it is refused, and the row is read-only
# (docs/reference/differences.md).
READ_ONLY_HERE = (
    "listener.security.protocol.map",
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "config.providers",
    "metric.reporters",
    "principal.builder.class",
    "group.coordinator.cached.buffer.max.bytes",
    "share.coordinator.cached.buffer.max.bytes",
    "group.streams.assignment.interval.ms",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.preallocate",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "follower.fetch.last.tiered.offset.enable",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "ssl.engine.factory.class",
)
# The rows that differ, with the fields that differ: exactly these must.
DIFFERENT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(READ_ONLY_HERE, ("read_only",)),
    # A test's two brokers need different values: where they listen and write, and who the controllers are.
    "controller.quorum.voters": VALUE_FIELDS,
    "listeners": ("read_only", "synonyms", "value"),
    "log.dir": VALUE_FIELDS,
    "log.dirs": ("synonyms", "value"),
    # Kafka has no documentation for these.
    "leader.replication.throttled.rate": ("documentation",),
    "unstable.feature.versions.enable": ("documentation",),
    # oncelog has its own default (OUR_DEFAULTS), which is a synonym of the value that was set.
    "controller.listener.names": ("synonyms",),
    "group.initial.rebalance.delay.ms": ("synonyms",),
    "node.id": ("synonyms",),
    "process.roles": ("synonyms",),
    "socket.receive.buffer.bytes": ("synonyms", "value"),
    "socket.send.buffer.bytes": ("synonyms", "value"),
}


PLACES = ("controller.quorum.voters", "listeners", "log.dir", "log.dirs")
"""Keys whose values are others in each run."""


@pytest.fixture(scope="module")
def own_brokers() -> Iterator[OnDemand[Broker]]:
    with OnDemand(lambda target: make_broker(target, SETTINGS)) as found:
        yield found


@pytest.fixture
def own_pair(answers: Recorder, own_brokers: OnDemand[Broker]) -> Pair:
    return Pair(answers, lambda target: own_brokers[target].bootstrap)


def describe(session: Session, kind: int, name: str) -> dict[str, Fields]:
    """All rows of DescribeConfigs by key, with True or False for their documentation."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    fields = {"include_synonyms": True, "include_documentation": True}
    (result,) = session.call_unobserved("DescribeConfigs", 4, {"resources": [resource], **fields})["results"]
    assert result["error_code"] == 0
    for row in result["configs"]:
        row["documentation"] = bool(row["documentation"])
    return {row["name"]: row for row in result["configs"]}


@facts.needs(facts.HAS_KEYS_OF_4_4, "such keys")
def test_every_row(answers: Recorder, own_pair: Pair) -> None:
    def described(target: str) -> dict[str, Fields]:
        with contextlib.closing(Session(own_pair.bootstrap(target))) as session:
            rows = describe(session, BROKER, NODE_ID)
        for name in PLACES:
            if name in rows:
                rows[name].update(value=f"of {target}", synonyms=f"of {target}")
        return rows

    found = answers.both(described)
    kafka, ours = found["kafka"], found["oncelog"]
    assert len(kafka) > 340
    assert sorted(kafka) == sorted(ours)
    different = {
        name: fields
        for name, row in kafka.items()
        if (fields := tuple(sorted(field for field in row if row[field] != ours[name][field])))
    }
    assert different == DIFFERENT


def test_a_groups_rows(own_pair: Pair) -> None:
    def scenario(session: Session) -> None:
        rows = describe(session, GROUP, "a group")
        session.observe("all", rows)
        assert rows["share.session.timeout.ms"]["value"] == "50000"

    own_pair.compare(scenario)


# A group's keys, with values around the bounds that the broker's configuration sets.
BOUNDS = {
    "share.session.timeout.ms": (39_999, 40_000, 55_000, 55_001),
    "share.heartbeat.interval.ms": (2_999, 3_000, 14_000, 14_001),
    "share.record.lock.duration.ms": (999, 19_999, 20_000, 50_000, 50_001),
    "share.delivery.count.limit": (1, 2, 3, 9, 10),
    "share.partition.max.record.locks": (99, 199, 200, 3_000, 3_001),
    "share.assignment.interval.ms": (-1, 499, 500, 2_000, 2_001),
    "streams.session.timeout.ms": (39_999, 40_000, 55_000, 55_001),
    "streams.heartbeat.interval.ms": (2_999, 3_000, 14_000, 14_001),
    "streams.num.standby.replicas": (-1, 0, 4, 5),
    "streams.assignment.interval.ms": (499, 500, 2_000, 2_001),
    "streams.num.warmup.replicas": (-1, 0, 20, 21),
    "streams.task.offset.interval.ms": (0, 14_999, 15_000),
    "streams.acceptable.recovery.lag": (-1, 0),
    "consumer.session.timeout.ms": (44_999, 45_000, 60_000, 60_001),
}


@facts.needs(facts.HAS_KEYS_OF_4_4, "such words")
def test_the_broker_bounds_a_groups_settings(own_pair: Pair) -> None:
    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        texts = []
        for key, values in BOUNDS.items():
            for value in values:
                row = {"name": key, "config_operation": SET, "value": str(value)}
                resource = {"resource_type": GROUP, "resource_name": f"{key}-{value}", "configs": [row]}
                fields = {"resources": [resource], "validate_only": True}
                response = session.call("IncrementalAlterConfigs", 1, fields, f"{key}={value}")
                texts.append(response["responses"][0]["error_message"])
        refused = [text for text in texts if text is not None]
        assert len(refused) == 31
        assert "share.delivery.count.limit must be in the range 3 to 9 inclusive." in refused
        assert "streams.num.warmup.replicas must be less than or equal to 20" in refused
        assert "streams.task.offset.interval.ms must be greater than or equal to 15000" in refused

    own_pair.compare(scenario)


@facts.needs(facts.HAS_STREAMS_TASK_OFFSETS, "such keys")
def test_internal_keys_of_a_group_are_shown_once_they_are_set(own_pair: Pair) -> None:
    def scenario(session: Session) -> None:
        changes = {
            "consumer.assignor.offload.enable": "false",
            "streams.task.offset.interval.ms": "20000",
            "streams.acceptable.recovery.lag": "7",
        }
        rows = [{"name": key, "config_operation": SET, "value": value} for key, value in changes.items()]
        resource = {"resource_type": GROUP, "resource_name": "internal", "configs": rows}
        session.call("IncrementalAlterConfigs", 1, {"resources": [resource]})
        deadline = now_ms() + WAIT_MS
        # Kafka's broker learns of the change after the response; another key, which is shown, tells when.
        row = {"name": "consumer.session.timeout.ms", "config_operation": SET, "value": "46000"}
        resource = {"resource_type": GROUP, "resource_name": "internal", "configs": [row]}
        session.call("IncrementalAlterConfigs", 1, {"resources": [resource]})
        while describe(session, GROUP, "internal")["consumer.session.timeout.ms"]["value"] != "46000":
            assert now_ms() < deadline
        session.observe("described", describe(session, GROUP, "internal"))

    own_pair.compare(scenario)


def test_refused_changes_of_keys_without_effect(own_pair: Pair) -> None:
    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        for key, operation, value in (
            ("queued.max.requests", SET, "600"),
            ("early.start.listeners", APPEND, "A"),
            ("num.io.threads", APPEND, "1"),
            ("no.such.key", APPEND, "1"),
        ):
            row = {"name": key, "config_operation": operation, "value": value}
            resource = {"resource_type": BROKER, "resource_name": NODE_ID, "configs": [row]}
            response = session.call("IncrementalAlterConfigs", 1, {"resources": [resource]}, key)
            assert response["responses"][0]["error_message"] is not None

    own_pair.compare(scenario)


@facts.needs(facts.CHECKS_CORDONED_ASSIGNMENTS, "check of such assignments")
def test_a_cordoned_directory_gets_no_new_partitions(own_pair: Pair) -> None:
    """Neither by a request that names the broker nor by one that leaves it to Kafka. What is there stays."""

    def scenario(session: Session) -> None:
        session.topic("there")

        def cordon(value: str | None, *, operation: int = SET) -> None:
            row = {"name": "cordoned.log.dirs", "config_operation": operation, "value": value}
            resource = {"resource_type": BROKER, "resource_name": NODE_ID, "configs": [row]}
            response = session.call(
                "IncrementalAlterConfigs", 1, {"resources": [resource]}, f"cordon {value}"
            )
            session.observe("error", response["responses"][0]["error_code"])

        def log_dir() -> Any:
            (row,) = session.call_unobserved("DescribeLogDirs", 5, {"topics": []})["results"]
            return row

        def wait_until_cordoned(expected: bool) -> None:
            deadline = now_ms() + WAIT_MS
            while log_dir()["is_cordoned"] != expected:
                assert now_ms() < deadline

        def create(note: str, **fields: Any) -> int:
            topic = {"name": f"new-{note}", "num_partitions": 1, "replication_factor": 1, **fields}
            values = {"topics": [topic], "timeout_ms": 15_000, "validate_only": True}
            response = session.call("CreateTopics", 7, values, note)
            return int(response["topics"][0]["error_code"])

        assigned: Fields = {"num_partitions": -1, "replication_factor": -1}
        assigned["assignments"] = [{"partition_index": 0, "broker_ids": [1]}]
        cordon("*,/tmp/no")
        cordon("/no/such/directory,/nor/this")
        session.exact_error_messages = True
        assert create("before") == 0
        for name in ("*", log_dir()["log_dir"]):
            change_unobserved(session, name)
            wait_until_cordoned(True)
            deadline = now_ms() + WAIT_MS
            while not create_unobserved(session):  # the controller hears of it by the broker's next heartbeat
                assert now_ms() < deadline
            create("placed")
            create("assigned", **assigned)
            for note, rows in (("placed", None), ("assigned", [{"broker_ids": [1]}])):
                topic = {"name": "there", "count": 2, "assignments": rows}
                values = {"topics": [topic], "timeout_ms": 15_000, "validate_only": True}
                session.call("CreatePartitions", 3, values, note)
            move = {"partition_index": 0, "replicas": [1]}
            moves = {"topics": [{"name": "there", "partitions": [move]}], "timeout_ms": 15_000}
            session.call("AlterPartitionReassignments", 0, moves)
            assert session.produce("there", batch(1))["error_code"] == 0
            cordon(None, operation=DELETE)
            wait_until_cordoned(False)
            while create_unobserved(session):
                assert now_ms() < deadline
            assert create("after") == 0

    own_pair.compare(scenario)


def create_unobserved(session: Session) -> int:
    topic = {"name": "try", "num_partitions": 1, "replication_factor": 1}
    values = {"topics": [topic], "timeout_ms": 15_000, "validate_only": True}
    return int(session.call_unobserved("CreateTopics", 7, values)["topics"][0]["error_code"])


def change_unobserved(session: Session, directory: str) -> None:
    row = {"name": "cordoned.log.dirs", "config_operation": SET, "value": directory}
    resource = {"resource_type": BROKER, "resource_name": NODE_ID, "configs": [row]}
    response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert response["responses"][0]["error_code"] == 0, response


@facts.needs(facts.LIMITS_DECOMPRESSED_RECORDS, "such a key")
def test_the_brokers_limit_of_decompressed_records(own_pair: Pair) -> None:
    """It holds for topics without a limit of their own, from its change on."""
    limit = "max.decompressed.message.bytes"

    def scenario(session: Session) -> None:
        session.topic("plain-limit")
        session.topic("own-limit", configs={limit: "5000"})
        records = batch([record(value=bytes(2000))], codec=GZIP)
        for value in ("0", "2147483640", "1000", None):
            row = {"name": limit, "config_operation": DELETE if value is None else SET, "value": value}
            resource = {"resource_type": BROKER, "resource_name": "", "configs": [row]}
            session.call("IncrementalAlterConfigs", 1, {"resources": [resource]}, f"{value}")
            if value in ("1000", None):
                session.wait_for_config("plain-limit", limit, value or str(2**31 - 9))
            for name in ("plain-limit", "own-limit"):
                session.observe(f"{name} {value}", session.produce(name, records)["error_code"])

    own_pair.compare(scenario)
