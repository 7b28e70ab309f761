"""DescribeCluster."""

from __future__ import annotations

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


@simulated
async def test_the_cluster_and_what_its_brokers_do_not_know() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        response = await client.call(DescribeClusterRequest(), 2, DescribeClusterResponse)
        [row] = response.brokers
        assert (row.broker_id, row.host, row.port, row.is_fenced) == (1, "simulated", 9092, False)
        assert response.controller_id == 1
        assert response.cluster_authorized_operations == -(2**31)
        cluster_id = response.cluster_id
        await broker.restart()
        response = await broker.connect().call(DescribeClusterRequest(True), 2, DescribeClusterResponse)
        assert response.cluster_id == cluster_id
        assert response.cluster_authorized_operations > 0


@simulated
async def test_other_endpoint_types() -> None:
    async with SimBroker() as broker:
        client = broker.connect()
        for endpoint_type, code in (
            (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        ):
            request = DescribeClusterRequest(False, endpoint_type)
            response = await client.call(request, 1, DescribeClusterResponse)
            assert response.error_code == code
