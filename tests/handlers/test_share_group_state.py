"""The APIs 83 to 87, between the leaders of share partitions, groups and the share coordinator.

`compat_tests/share/test_diff_state.py` compares their answers with Kafka's.
"""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import delete_share_group_state as deleting
from oncelog.wire.messages import initialize_share_group_state as initializing
from oncelog.wire.messages import read_share_group_state as reading
from oncelog.wire.messages import read_share_group_state_summary as summing
from oncelog.wire.messages import write_share_group_state as writing
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient
from tests.harness.simulation import simulated


def test_a_state_is_begun_written_read_and_deleted() -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            topic_id = await create_topic(client, "t", 2)
            rows = [initializing.PartitionData(number, 3, 10) for number in (0, 1, 7)]
            request: Any = initializing.InitializeShareGroupStateRequest(
                "g", [initializing.InitializeStateData(topic_id, rows)]
            )
            response = await client.call(request, 0, initializing.InitializeShareGroupStateResponse)
            [topic] = response.results
            assert topic.topic_id == topic_id
            assert [(row.partition, row.error_code) for row in topic.partitions] == [
                (0, 0),
                (1, 0),
                (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            batches = [writing.StateBatch(12, 13, 2, 1)]
            written = writing.PartitionData(0, 3, 0, 11, 2, batches)
            request = writing.WriteShareGroupStateRequest("g", [writing.WriteStateData(topic_id, [written])])
            response = await client.call(request, 1, writing.WriteShareGroupStateResponse)
            assert response.results[0].partitions[0].error_code == 0
            asked = reading.ReadStateData(topic_id, [reading.PartitionData(0, 5)])
            request = reading.ReadShareGroupStateRequest("g", [asked])
            response = await client.call(request, 0, reading.ReadShareGroupStateResponse)
            [row] = response.results[0].partitions
            assert (row.state_epoch, row.start_offset) == (3, 11)
            assert [(it.first_offset, it.last_offset) for it in row.state_batches] == [(12, 13)]
            assert await summary(client, topic_id) == (3, 5, 11, 2)
            request = deleting.DeleteShareGroupStateRequest(
                "g", [deleting.DeleteStateData(topic_id, [deleting.PartitionData(0)])]
            )
            response = await client.call(request, 0, deleting.DeleteShareGroupStateResponse)
            assert response.results[0].partitions[0].error_code == 0
            assert await summary(client, topic_id) == (0, 0, -1, -1)

    run()


async def summary(client: SimClient, topic_id: bytes) -> tuple[int, int, int, int]:
    asked = summing.ReadStateSummaryData(topic_id, [summing.PartitionData(0, 5)])
    request = summing.ReadShareGroupStateSummaryRequest("g", [asked])
    response = await client.call(request, 1, summing.ReadShareGroupStateSummaryResponse)
    [row] = response.results[0].partitions
    assert row.error_code == 0
    return row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count


@pytest.mark.parametrize(("group", "partitions"), [("", [0]), ("g", [])])
def test_without_a_group_or_rows_the_answer_is_empty(group: str, partitions: list[int]) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            topic_id = await create_topic(client, "t")
            rows = [reading.PartitionData(number, 0) for number in partitions]
            request = reading.ReadShareGroupStateRequest(group, [reading.ReadStateData(topic_id, rows)])
            response = await client.call(request, 0, reading.ReadShareGroupStateResponse)
            assert response.results == []

    run()


def test_only_who_may_do_cluster_action_is_served() -> None:
    @simulated
    async def run() -> None:
        config = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:root",
        }
        async with SimBroker(config=config) as broker:
            rows = [reading.PartitionData(0, 0), reading.PartitionData(1, 0)]
            request = reading.ReadShareGroupStateRequest("g", [reading.ReadStateData(bytes(16), rows)])
            response = await broker.connect().call(request, 0, reading.ReadShareGroupStateResponse)
            [topic] = response.results
            assert [row.error_code for row in topic.partitions] == [
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ]

    run()
