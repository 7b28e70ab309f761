"""A consumer group whose topic's replicas move to other racks: its hash of the topics has the racks (KIP-1101)."""

from functools import partial
from typing import Any

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import Partition, call, create_topic
from compat_tests.nodes.waiting import wait_until

RETRIED = (14, 15, 16)
"""Errors of a coordinator that is not there yet."""


def ask(kafka: Cluster, group: str, api: str, version: int, body: Any) -> Any:
    """The response of the group's coordinator, once there is one."""

    def once() -> Any:
        found = call(kafka, 1, "FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        (row,) = found["coordinators"]
        if row["error_code"]:
            return row
        response = call(kafka, row["node_id"], api, version, body)
        return response["groups"][0] if "groups" in response else response

    return wait_until(once, lambda response: response["error_code"] not in RETRIED, "the coordinator")


def test_replicas_that_move_to_another_rack_rebalance_the_group(kafka: Cluster, name: str) -> None:
    topic = create_topic(kafka, name, (1, 2))
    epoch = 0
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [name], "topic_partitions": []}

    def described() -> Any:
        """What the group is after one more heartbeat."""
        nonlocal epoch
        body = {"group_id": name, "member_id": "m", "member_epoch": epoch, **({} if epoch else joins)}
        response = ask(kafka, name, "ConsumerGroupHeartbeat", 1, body)
        assert response["error_code"] == 0, response
        epoch = response["member_epoch"]
        return ask(kafka, name, "ConsumerGroupDescribe", 1, {"group_ids": [name]})

    def is_settled(group: Any) -> bool:
        return bool(epoch == group["group_epoch"] == group["assignment_epoch"] and assigned(group))

    before = wait_until(described, is_settled, "a stable group")["group_epoch"]
    assert described()["group_epoch"] == before
    for count, replicas in enumerate(((1, 3), (1, 2)), 1):  # the coordinator has the old racks in its cache
        topic.reassign(replicas)
        topic.wait_for(partial(has_replicas, replicas))
        wait_until(described, partial(has_epoch, before + count), "a new epoch")


def assigned(group: Any) -> Any:
    (member,) = group["members"]
    return member["assignment"]["topic_partitions"]


def has_replicas(replicas: tuple[int, ...], row: Partition) -> bool:
    return row.replicas == replicas


def has_epoch(epoch: int, group: Any) -> bool:
    return bool(group["group_epoch"] == epoch)
