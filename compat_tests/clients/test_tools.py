"""Kafka's own command-line tools on both targets. Each run costs a JVM, so each asserts as much as it can."""

import json
import pathlib
import re
from time import monotonic

import pytest

from compat_tests.clients.stock_clients import Confluent, KafkaPython, Options, Record
from compat_tests.differential import Session, make_topic
from tests.common import facts
from tests.common.batches import batch
from tests.common.jars import RealPartMissing, require, run_tool, tool_command

THROUGH_A_PROXY = pytest.mark.also_on("proxy")
"""Of the other tools the differential tests show every request through a proxy, without a JVM."""

TOOLS = "org.apache.kafka.tools."
TIME_MS = 1_790_000_000_000


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        tool_command("none")
    except RealPartMissing as missing:
        require(str(missing))


def tool(bootstrap: str, name: str, *arguments: str, input: str | None = None, check: bool = True) -> str:
    """Run a tool of `org.apache.kafka.tools`, or of another package by its full name; its standard output."""
    command = name if name.startswith(("kafka.", "org.")) else TOOLS + name
    run = run_tool(command, "--bootstrap-server", bootstrap, *arguments, input=input, check=check)
    return run.stdout


@THROUGH_A_PROXY
def test_console_producer_and_consumer(bootstrap: str, name: str) -> None:
    make_topic(bootstrap, name)
    lines = [f"key-{number}\tvalue {number} \u00e4" for number in range(50)]
    reader = ("--reader-property", "parse.key=true", "--compression-codec", "zstd")
    tool(bootstrap, "ConsoleProducer", "--topic", name, *reader, input="\n".join(lines) + "\n")
    found = KafkaPython.consume(bootstrap, name, 0, 0, 50)
    assert [f"{(one.key or b'').decode()}\t{(one.value or b'').decode()}" for one in found] == lines

    arguments = (
        "--topic",
        name,
        "--partition",
        "0",
        "--timeout-ms",
        "20000",
        "--formatter-property",
        "print.key=true",
    )
    whole = tool(
        bootstrap, "consumer.ConsoleConsumer", *arguments, "--offset", "earliest", "--max-messages", "50"
    )
    assert whole.splitlines() == lines
    part = tool(bootstrap, "consumer.ConsoleConsumer", *arguments, "--offset", "40", "--max-messages", "10")
    assert part.splitlines() == lines[40:]


@THROUGH_A_PROXY
def test_end_to_end_latency(bootstrap: str, name: str) -> None:
    """The tool creates its topic, assigns itself the partitions, reads each record that it sent, and commits."""
    sizes = ("--num-records", "300", "--record-size", "100", "--record-key-size", "8")
    shown = tool(bootstrap, "EndToEndLatency", "--topic", name, *sizes, "--producer-acks", "all")
    assert re.search(r"Avg latency: \d+[.,]\d+ ms", shown), shown
    assert "Percentiles: " in shown


def test_producer_performance(bootstrap: str, name: str) -> None:
    make_topic(bootstrap, name, 2)
    settings = ("acks=all", "compression.type=lz4", "batch.size=20000", f"bootstrap.servers={bootstrap}")
    numbers = ("--num-records", "20000", "--record-size", "120", "--throughput", "-1")
    shown = run_tool(
        TOOLS + "ProducerPerformance", "--topic", name, *numbers, "--producer-props", *settings
    ).stdout
    assert "20000 records sent" in shown
    offsets = tool(bootstrap, "GetOffsetShell", "--topic", name).split()
    assert sum(int(line.split(":")[2]) for line in offsets) == 20000


def test_get_offsets(bootstrap: str, name: str) -> None:
    """Every special timestamp of ListOffsets, with the version that the Admin client chooses for it."""
    make_topic(bootstrap, name, 2)
    session = Session(bootstrap)
    for number in range(4):
        assert session.produce(name, batch(2, base_timestamp=TIME_MS + 10 * number))["error_code"] == 0
    assert session.delete_records(name, 2)["topics"]
    session.close()
    expected = {
        "-1": [f"{name}:0:8", f"{name}:1:0"],
        "earliest": [f"{name}:0:2", f"{name}:1:0"],
        "max-timestamp": [f"{name}:0:6"],
        "earliest-local": [f"{name}:0:2", f"{name}:1:0"],
        "latest-tiered": [],
        "earliest-pending-upload": [],
        str(TIME_MS + 15): [f"{name}:0:4"],
        str(TIME_MS + 999): [],
    }
    for time, lines in expected.items():
        assert tool(bootstrap, "GetOffsetShell", "--topic", name, "--time", time).split() == lines, time


@THROUGH_A_PROXY
def test_topics(bootstrap: str, name: str) -> None:
    configs = ("--config", "retention.ms=60000", "--config", "cleanup.policy=compact")
    created = tool(bootstrap, "TopicCommand", "--create", "--topic", name, "--partitions", "2", *configs)
    assert f"Created topic {name}." in created
    shown = tool(bootstrap, "TopicCommand", "--describe", "--topic", name)
    assert re.search(
        rf"Topic: {name}\s+TopicId: \S{{22}}\s+PartitionCount: 2\s+ReplicationFactor: 1", shown
    ), shown
    assert "retention.ms=60000" in shown
    assert "cleanup.policy=compact" in shown
    assert re.search(r"Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1", shown), shown
    again = run_tool(
        TOOLS + "TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", name, check=False
    )
    assert again.returncode == 1
    assert "TopicExistsException" in again.stdout + again.stderr
    tool(bootstrap, "TopicCommand", "--alter", "--topic", name, "--partitions", "5")
    tool(bootstrap, "TopicCommand", "--delete", "--topic", name)
    assert name not in tool(bootstrap, "TopicCommand", "--list").split()


def test_configs(bootstrap: str, name: str) -> None:
    make_topic(bootstrap, name)
    entity = ("--entity-type", "topics", "--entity-name", name)
    tool(
        bootstrap,
        "org.apache.kafka.tools.ConfigCommand",
        "--alter",
        *entity,
        "--add-config",
        "retention.ms=1234,flush.ms=99",
    )
    shown = tool(bootstrap, "org.apache.kafka.tools.ConfigCommand", "--describe", *entity)
    assert "retention.ms=1234 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1234}" in shown
    tool(
        bootstrap,
        "org.apache.kafka.tools.ConfigCommand",
        "--alter",
        *entity,
        "--delete-config",
        "retention.ms",
    )
    shown = tool(bootstrap, "org.apache.kafka.tools.ConfigCommand", "--describe", *entity)
    assert "retention.ms" not in shown
    assert "flush.ms=99" in shown
    everything = tool(
        bootstrap,
        "org.apache.kafka.tools.ConfigCommand",
        "--describe",
        "--entity-type",
        "brokers",
        "--entity-name",
        "1",
        "--all",
    )
    assert "log.retention.hours=168" in everything


def test_delete_records(bootstrap: str, name: str, tmp_path: pathlib.Path) -> None:
    make_topic(bootstrap, name)
    Confluent.produce(bootstrap, name, 0, [Record(b"k", b"v")] * 10, Options())
    plan = tmp_path / "offsets.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 7}]}))
    shown = tool(bootstrap, "DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert f"partition: {name}-0\tlow_watermark: 7" in shown
    assert len(Confluent.consume(bootstrap, name, 0, 7, 3)) == 3


def test_log_dirs(bootstrap: str, name: str) -> None:
    make_topic(bootstrap, name, 2)
    Confluent.produce(bootstrap, name, 0, [Record(b"k", b"v" * 1000)], Options())
    shown = tool(bootstrap, "LogDirsCommand", "--describe", "--topic-list", name)
    (row,) = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    (directory,) = row["brokers"][0]["logDirs"]
    assert directory["error"] is None
    sizes = {one["partition"]: one["size"] for one in directory["partitions"]}
    assert sizes[f"{name}-0"] > 1000
    assert sizes[f"{name}-1"] == 0


def test_reassignment_to_a_log_directory(bootstrap: str, name: str, tmp_path: pathlib.Path) -> None:
    """kafka-reassign-partitions moves a replica to its own directory, and to no unknown one."""
    make_topic(bootstrap, name)
    session = Session(bootstrap)
    (directory,) = session.call_unobserved("DescribeLogDirs", 4, {"topics": []})["results"]
    session.close()
    plan = tmp_path / "plan.json"

    def reassign(action: str, *, path: str) -> str:
        row = {"topic": name, "partition": 0, "replicas": [1], "log_dirs": [path]}
        plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
        arguments = (f"--{action}", "--reassignment-json-file", str(plan))
        run = run_tool(
            TOOLS + "reassign.ReassignPartitionsCommand",
            *("--bootstrap-server", bootstrap, *arguments),
            check=False,
        )
        return run.stdout + run.stderr

    shown = reassign("execute", path=directory["log_dir"])
    assert (
        f"Successfully started moving log directory to {directory['log_dir']} for replica {name}-0" in shown
    ), shown
    shown = reassign("verify", path=directory["log_dir"])
    assert f"Reassignment of replica {name}-0-1 completed successfully." in shown, shown
    shown = reassign("execute", path="/no/such/directory")
    assert "LogDirNotFoundException" in shown, shown


@THROUGH_A_PROXY
def test_features_and_versions(bootstrap: str) -> None:
    features = tool(bootstrap, "FeatureCommand", "describe")
    level = rf"Feature: metadata.version\s.*FinalizedVersionLevel: {facts.METADATA_VERSION_NAME}"
    assert re.search(level, features), features
    versions = tool(bootstrap, "BrokerApiVersionsCommand")
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", versions), versions
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", versions), versions


def test_nodes_that_are_not_there(bootstrap: str, tmp_path: pathlib.Path) -> None:
    where = ("--bootstrap-server", bootstrap)
    ran = run_tool(f"{TOOLS}ClusterTool", "unregister", *where, "--id", "77", check=False)
    assert "Broker ID 77 is not currently registered" in ran.stderr
    directory = ("--controller-id", "77", "--controller-directory-id", "Iwxq65gLQvGpY0m9R1ufPw")
    ran = run_tool(f"{TOOLS}MetadataQuorumCommand", *where, "remove-controller", *directory, check=False)
    assert "Cluster doesn't support removing voter because the kraft.version feature is 0" in ran.stderr
    controller = tmp_path / "controller.properties"
    controller.write_text(
        "process.roles=controller\nnode.id=77\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:1\nlog.dirs={tmp_path}\n"
    )
    directory_id = directory[-1]
    (tmp_path / "meta.properties").write_text(
        f"version=1\ncluster.id=any\nnode.id=77\ndirectory.id={directory_id}\n"
    )
    add = ("--command-config", str(controller), "add-controller")
    ran = run_tool(f"{TOOLS}MetadataQuorumCommand", *where, *add, check=False)
    assert "Cluster doesn't support adding voter because the kraft.version feature is 0" in ran.stderr


def test_groups_that_have_a_configuration(bootstrap: str, name: str) -> None:
    """kafka-configs finds them by ListConfigResources."""
    groups = ("org.apache.kafka.tools.ConfigCommand", "--entity-type", "groups")
    tool(
        bootstrap,
        *groups,
        "--entity-name",
        name,
        "--alter",
        "--add-config",
        "consumer.session.timeout.ms=46000",
    )
    deadline = monotonic() + 60
    while f"group {name} are:" not in (
        shown := tool(bootstrap, *groups, "--describe")
    ):  # Kafka's broker learns of it a moment later
        assert monotonic() < deadline, shown
    _, _, own = shown.partition(f"group {name} are:")
    assert own.lstrip().startswith("consumer.session.timeout.ms=46000 "), shown


def test_client_metrics(bootstrap: str, name: str) -> None:
    command = "ClientMetricsCommand"
    created = tool(
        bootstrap, command, "--alter", "--name", name, "--metrics", "org.apache.kafka.producer.",
        "--interval", "60000", "--match", "client_id=nobody",
    )  # fmt: skip
    assert created == f"Altered client metrics config for {name}.\n"
    deadline = monotonic() + 30
    while name not in (
        listed := tool(bootstrap, command, "--list")
    ):  # Kafka's broker learns of it a moment later
        assert monotonic() < deadline, listed
    described = tool(bootstrap, command, "--describe", "--name", name)
    assert described == (
        f"Client metrics configs for {name} are:\n"
        "  interval.ms=60000\n  match=client_id=nobody\n  metrics=org.apache.kafka.producer.\n"
    )
    entity = ("--entity-type", "client-metrics", "--entity-name", name)
    shown = tool(bootstrap, "org.apache.kafka.tools.ConfigCommand", *entity, "--describe")
    assert "interval.ms=60000 sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG" in shown, shown
    assert (
        tool(bootstrap, command, "--delete", "--name", name) == f"Deleted client metrics config for {name}.\n"
    )


def test_levels_of_loggers(bootstrap: str) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    config = "org.apache.kafka.tools.ConfigCommand"
    before = tool(bootstrap, config, *loggers, "--describe")
    (level,) = re.findall(r"^ *root=(\w+) sensitive=false", before, re.MULTILINE)
    try:
        set_it = tool(bootstrap, config, *loggers, "--alter", "--add-config", "root=ERROR")
        assert set_it == "Completed updating config for broker-logger 1.\n"
        assert re.search(r"^ *root=ERROR ", tool(bootstrap, config, *loggers, "--describe"), re.MULTILINE)
    finally:
        tool(bootstrap, config, *loggers, "--alter", "--add-config", f"root={level}")
    refused = run_tool(
        config, "--bootstrap-server", bootstrap, *loggers, "--alter", "--add-config", "root=LOUD", check=False
    )
    assert "Cannot set the log level of root to LOUD as it is not a supported log level" in refused.stderr
