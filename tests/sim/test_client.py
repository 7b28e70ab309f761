"""The client against a whole simulated broker: the same seed gives the same run, through a restart and a crash."""

import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.errors import error_codes
from oncelog.broker.client.routes import Controller, CoordinatorOf, LeaderOf, Retry
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.common.batches import batch, read_batches
from tests.harness.requests import fetch_request, produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import deterministic, simulated

RETRY = Retry(timeout_s=60)
SIMULATED = [("simulated", 9092)]


def commit(offset: int) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])]
    return OffsetCommitRequest("group", -1, topics=rows)


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[tuple[float, str]]:
        trace: list[tuple[float, str]] = []

        async def main() -> None:
            async with SimBroker(seed) as broker:
                with ClusterClient(SIMULATED, broker.open_transport) as client:
                    await client.call(CreateTopicsRequest([CreatableTopic("t", 3, 1)], 1000), Controller())
                    async with trio.open_nursery() as nursery:
                        for partition in range(3):
                            nursery.start_soon(produce, client, partition)
                            nursery.start_soon(consume, client, partition)

        async def produce(client: ClusterClient, partition: int) -> None:
            for _ in range(3):
                request = produce_request("t", batch(), partition)
                response = await client.call(request, LeaderOf("t", partition), version=9, retry=RETRY)
                row = response.responses[0].partition_responses[0]
                trace.append((trio.current_time(), f"produced {partition}-{row.base_offset}"))
                await trio.sleep(0.2)

        async def consume(client: ClusterClient, partition: int) -> None:
            offset = 0
            while offset < 3:
                request = fetch_request("t", offset, partition, max_wait_ms=500)
                response = await client.call(request, LeaderOf("t", partition), version=12)
                records = response.responses[0].partitions[0].records
                assert isinstance(records, memoryview)
                offset += sum(1 for _ in read_batches(bytes(records)))
                trace.append((trio.current_time(), f"fetched {partition} up to {offset}"))

        deterministic(main, seed)
        return trace

    first = run(7)
    assert len([shown for _, shown in first if shown.startswith("produced")]) == 9
    assert first == run(7)


@simulated
async def test_a_call_outlives_restart_and_crash() -> None:
    async with SimBroker(3) as broker:
        with ClusterClient(SIMULATED, broker.open_transport, request_timeout_s=5) as client:
            await client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), Controller())
            for offset in range(3):
                response = await client.call(commit(offset), CoordinatorOf("group"), version=8, retry=RETRY)
                assert error_codes(response) == ()
                if offset == 0:
                    await broker.stop()
                else:
                    await broker.crash("process")
                async with trio.open_nursery() as nursery:

                    async def start() -> None:
                        await trio.sleep(3)
                        await broker.start()

                    nursery.start_soon(start)
                    produced = await client.call(
                        produce_request("t", batch()),
                        LeaderOf("t", 0),
                        version=9,
                        retry=RETRY,
                    )
                row = produced.responses[0].partition_responses[0]
                assert (row.error_code, row.base_offset) == (0, offset)


@simulated
async def test_a_heartbeat_does_not_wait_behind_a_fetch() -> None:
    async with SimBroker(1) as broker:
        with ClusterClient(SIMULATED, broker.open_transport) as client:
            await client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), Controller())
            await client.call(commit(0), CoordinatorOf("group"), version=8, retry=RETRY)
            async with trio.open_nursery() as nursery:
                fetch = fetch_request("t", 0, max_wait_ms=20_000)
                nursery.start_soon(lambda: client.call(fetch, LeaderOf("t", 0), version=12))
                await trio.sleep(1)
                start = trio.current_time()
                assert error_codes(await client.call(commit(1), CoordinatorOf("group"), version=8)) == ()
                assert trio.current_time() == start
                found = await client.call(FindCoordinatorRequest(coordinator_keys=["group"]))
                assert trio.current_time() - start > 15  # it waited behind the Fetch
                assert error_codes(found) == ()


@simulated
async def test_errors_of_a_group() -> None:
    async with SimBroker(1) as broker:
        with ClusterClient(SIMULATED, broker.open_transport) as client:
            protocols = [JoinGroupRequestProtocol("range", b"")]
            join = JoinGroupRequest("group", 10_000, 10_000, "", None, "consumer", protocols)
            response = await client.call(join, CoordinatorOf("group"), retry=RETRY)
            assert error_codes(response) == (ErrorCode.MEMBER_ID_REQUIRED,)
            assert response.member_id
