"""Listing, describing and deleting groups."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.admin import GroupFilter, delete_groups, describe_groups, list_groups
from oncelog.coordinator.groups.offsets import commit_offsets
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.steps import finish
from tests.harness.classic_clients import DELAY_MS, ClassicClient, stable, subscription
from tests.harness.group_shard import GroupShardHarness


def commit(harness: GroupShardHarness, group: str) -> None:
    rows = [OffsetCommitRequestPartition(partition, 5, -1, "") for partition in (0, 1)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
    commit_offsets(harness.shard, OffsetCommitRequest(group, -1, "", topics=topics), harness.client(8))


def groups_of_all_kinds() -> GroupShardHarness:
    harness = GroupShardHarness()
    stable(harness, [ClassicClient(harness, group="s", client_id="c", instance="i")])
    gone = ClassicClient(harness, group="e")
    stable(harness, [gone])
    gone.leave()
    ClassicClient(harness, group="p", protocol_type="connect", protocols={"x": b"w"}).enter()
    commit(harness, "simple")
    return harness


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ([], [], "s e p simple"),
        (["Stable"], [], "s"),
        (["stable", "PREPARINGREBALANCE"], [], "s p"),
        ([" empty "], [], "e simple"),
        (["Nonsense"], [], ""),
        ([], ["Classic"], "s e p simple"),
        ([], ["consumer"], ""),
        ([], [" classic"], ""),
        ([], ["nonsense", "classic"], "s e p simple"),
        (["Empty"], ["CLASSIC"], "e simple"),
    ],
)
def test_list(states: list[str], types: list[str], listed: str) -> None:
    rows = finish(list_groups(groups_of_all_kinds().shard, GroupFilter(ListGroupsRequest(states, types))))
    assert {row.group_id for row in rows} == set(listed.split())


def test_listed_fields() -> None:
    rows = finish(list_groups(groups_of_all_kinds().shard, GroupFilter(ListGroupsRequest())))
    assert {(row.group_id, row.protocol_type, row.group_state, row.group_type) for row in rows} == {
        ("s", "consumer", "Stable", "classic"),
        ("e", "consumer", "Empty", "classic"),
        ("p", "connect", "PreparingRebalance", "classic"),
        ("simple", "", "Empty", "classic"),
    }


def test_describe() -> None:
    harness = groups_of_all_kinds()
    stable_group, preparing, empty, simple = describe_groups(
        harness.shard, ["s", "p", "e", "simple"], harness.client(6)
    )
    assert (stable_group.group_state, stable_group.protocol_type, stable_group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    [member] = stable_group.members
    assert (member.group_instance_id, member.client_id, member.client_host) == ("i", "c", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (
        subscription("t"),
        member.member_id.encode(),
    )
    assert (preparing.group_state, preparing.protocol_type, preparing.protocol_data) == (
        "PreparingRebalance",
        "connect",
        "",
    )
    assert [row.member_metadata for row in preparing.members] == [b""], "nothing is settled yet"
    assert (empty.group_state, empty.protocol_type, empty.members) == ("Empty", "consumer", [])
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])


@pytest.mark.parametrize("version", range(7))
def test_describe_missing_groups(version: int) -> None:
    harness = GroupShardHarness()
    [row] = describe_groups(harness.shard, ["x"], harness.client(version))
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (row.error_code, row.group_state) == (code, "Dead")
    assert row.error_message == ("Group x not found." if version >= 6 else None)


def test_delete() -> None:
    harness = groups_of_all_kinds()
    commit(harness, "e")
    rows = delete_groups(harness.shard, ["s", "e", "p", "simple", "x"])
    assert [(row.group_id, row.error_code) for row in rows] == [
        ("s", ErrorCode.NON_EMPTY_GROUP),
        ("e", ErrorCode.NONE),
        ("p", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("x", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert harness.shard.groups.keys() == {"s", "p"}
    assert harness.reloaded().groups.keys() == {"s", "p"}
    commit(harness, "e")
    assert harness.shard.groups["e"].protocol_type == ""


def test_a_deletion_that_cannot_be_written_deletes_nothing() -> None:
    harness = groups_of_all_kinds()
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        delete_groups(harness.shard, ["e", "simple"])
    assert harness.shard.groups.keys() == {"s", "e", "p", "simple"}


def test_a_deleted_group_completes_waiting_requests() -> None:
    """A member that joins with its given id after the deletion is unknown."""
    harness = GroupShardHarness()
    client = ClassicClient(harness)
    client.join()
    [row] = delete_groups(harness.shard, ["g"])
    assert row.error_code == ErrorCode.NONE
    assert not len(harness.deadlines)
    response = client.join()
    assert response is not None
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(2 * DELAY_MS)
    assert not harness.shard.groups
