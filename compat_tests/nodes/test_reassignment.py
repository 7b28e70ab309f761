"""A partition that moves to other nodes under load: 100 MB, throttled, cancelled halfway, and then to its end."""

import json
import pathlib
from concurrent.futures import ThreadPoolExecutor

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import BROKER, Topic, call, create_topic, reachable, set_config
from compat_tests.nodes.waiting import wait_until
from compat_tests.nodes.writers import Writer, writing
from tests.common.jars import run_tool

MEGABYTE = b"x" * 1_000_000
MEGABYTES = 100
CRAWL, WALK = 10_000, 4_000_000
"""Bytes a second, over ten seconds: who has crawled so long may then run for a while."""
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


class Reassign:
    """kafka-reassign-partitions for partition 0 of a topic, which goes to nodes 3 and 2."""

    def __init__(self, kafka: Cluster, topic: str, folder: pathlib.Path) -> None:
        self._servers = kafka.bootstrap_servers
        self._file = folder / "plan.json"
        row = {"topic": topic, "partition": 0, "replicas": [3, 2]}
        self._file.write_text(json.dumps({"version": 1, "partitions": [row]}))

    def __call__(self, *arguments: str) -> str:
        plan = [] if "--list" in arguments else ["--reassignment-json-file", str(self._file)]
        return run_tool(TOOL, "--bootstrap-server", self._servers, *plan, *arguments).stdout


def set_throttle(kafka: Cluster, rate: int) -> None:
    for node in kafka.nodes:
        for role in ("leader", "follower"):
            set_config(kafka, BROKER, str(node), f"{role}.replication.throttled.rate", str(rate))


def directories(kafka: Cluster, topic: Topic) -> list[int]:
    """The nodes that have a directory for the topic's partition."""
    asked = {"topics": [{"topic": topic.name, "partitions": [0]}]}
    rows = {node: call(kafka, node, "DescribeLogDirs", 4, asked)["results"] for node in reachable(kafka)}
    return [node for node, results in rows.items() if any(result["topics"] for result in results)]


def check(topic: Topic, node: int, written: list[str]) -> None:
    """Assert that a client's records are in the log once, and in their order."""
    prefix = written[0].partition("-")[0].encode()
    log = [value.decode() for _, value in topic.records(node) if value and value.startswith(prefix)]
    assert log == written


def test_a_partition_moves_under_load(
    kafka: Cluster, name: str, writers: dict[str, Writer], tmp_path: pathlib.Path
) -> None:
    topic = create_topic(kafka, name, (1, 2))
    reassign = Reassign(kafka, name, tmp_path)
    for _ in range(MEGABYTES):
        assert topic.produce(1, MEGABYTE)["error_code"] == 0
    with writing(kafka.bootstrap_servers, dict.fromkeys(writers, name), writers) as found:

        def wait_for_more() -> None:
            for one in found.values():
                one.wait_for_more()

        wait_for_more()
        said = reassign("--execute", "--throttle", str(CRAWL))
        assert f"Successfully started partition reassignment for {name}-0" in said, said
        # Where it goes stands first, then who has to leave.
        assert topic.wait_for(lambda row: row.replicas != (1, 2))[:4] == (1, 0, (3, 2, 1), (1, 2))
        assert f"{name}-0: replicas: 3,2,1. adding: 3. removing: 1." in reassign("--list")
        wait_for_more()
        assert topic.ends()[3] < MEGABYTES / 2
        set_throttle(kafka, WALK)
        wait_until(topic.ends, lambda ends: ends[3] > MEGABYTES / 2)
        set_throttle(kafka, CRAWL)
        said = reassign("--cancel")
        assert f"Successfully cancelled partition reassignment for: {name}-0" in said, said
        # The leader's epoch rises though it stays, and the order is the plan's.
        assert topic.wait_for(lambda row: len(row.replicas) == 2)[:4] == (1, 1, (2, 1), (1, 2))
        wait_until(lambda: directories(kafka, topic), lambda nodes: nodes == [1, 2])
        wait_for_more()
        reassign("--execute")
        after = topic.wait_for(lambda row: row.replicas == (3, 2))
        assert after[:4] == (3, 2, (3, 2), (2, 3))
        wait_for_more()
        said = reassign("--verify")
        assert f"Reassignment of partition {name}-0 is completed." in said, said
        wait_until(lambda: directories(kafka, topic), lambda nodes: nodes == [2, 3])
    for node in (2, 3):
        topic.wait_for_watermark(node, topic.ends()[3])
        for one in found.values():
            check(topic, node, one.values)


def test_a_reassignment_to_the_leader_alone_acknowledges_what_waits_for_the_others(
    kafka: Cluster, name: str
) -> None:
    topic = create_topic(kafka, name, (1, 2, 3), configs={"min.insync.replicas": "1"})
    for other in (2, 3):
        kafka.network.cut(1, other)
    try:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(topic.produce, 1, b"once", timeout_ms=60_000)
            wait_until(lambda: topic.ends()[1], lambda end: end == 1, "the record")
            partition = {"partition_index": 0, "replicas": [1]}
            asked = {"timeout_ms": 30_000, "topics": [{"name": name, "partitions": [partition]}]}
            assert call(kafka, 1, "AlterPartitionReassignments", 0, asked)["error_code"] == 0
            row = answer.result()
    finally:
        kafka.network.heal()
    assert (row["error_code"], row["base_offset"]) == (0, 0)
    assert [value for _, value in topic.records(1)] == [b"once"]
