"""A consumer group whose topic's replicas move to other racks: its hash of the topics has the racks (KIP-1101)."""

from typing import Any

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import call, create_topic
from compat_tests.nodes.waiting import wait_until

RETRIED = (14, 15, 16)
"""Errors of a coordinator that is not there yet."""


def heartbeat(kafka: Cluster, group: str, epoch: int, **more: Any) -> Any:
    """The response to a heartbeat, by the group's coordinator, once there is one."""

    def ask() -> Any:
        found = call(kafka, 1, "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        (row,) = found["coordinators"]
        if row["error_code"]:
            return row
        body = {"group_id": group, "member_id": "m", "member_epoch": epoch, **more}
        return call(kafka, row["node_id"], "ConsumerGroupHeartbeat", 1, body)

    return wait_until(ask, lambda response: response["error_code"] not in RETRIED, "the coordinator")


def test_replicas_that_move_to_another_rack_rebalance_the_group(kafka: Cluster, name: str) -> None:
    topic = create_topic(kafka, name, (1, 2))
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [name], "topic_partitions": []}
    wait_until(
        lambda: heartbeat(kafka, name, 0, **joins),
        lambda response: bool((response["assignment"] or {"topic_partitions": []})["topic_partitions"]),
        "an assignment",
    )
    epoch = int(heartbeat(kafka, name, 0, **joins)["member_epoch"])
    assert heartbeat(kafka, name, epoch)["member_epoch"] == epoch
    topic.reassign((1, 3))
    topic.wait_for(lambda row: row.replicas == (1, 3))

    def next_epoch() -> int:
        nonlocal epoch
        response = heartbeat(kafka, name, epoch)
        assert response["error_code"] == 0, response
        now = int(response["member_epoch"])
        before, epoch = epoch, now
        return now - before

    wait_until(next_epoch, lambda more: more > 0, "a new epoch")
