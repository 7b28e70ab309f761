"""DescribeCluster (API key 60): names the cluster id, the controller and the nodes (KIP-700)."""

from __future__ import annotations

from oncelog.broker.handlers.services import Services
from oncelog.broker.requests.authorization import NOT_ASKED
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types (KIP-919)."""


def handle(
    services: Services, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return _unserved_endpoint_type(request.endpoint_type, context.api_version)
    wants_operations = request.include_cluster_authorized_operations
    cluster, listener_name = services.cluster, context.connection.listener_name
    live = cluster.alive(listener_name)
    return DescribeClusterResponse(
        0,
        0,
        None,
        BROKERS,
        cluster.cluster_id,
        cluster.controller_id(),
        [
            DescribeClusterBroker(*node, is_fenced=node.node_id not in live)
            for node in cluster.nodes(listener_name, with_fenced=request.include_fenced_brokers)
        ],
        services.authorization.cluster_operations(context) if wants_operations else NOT_ASKED,
    )


def _unserved_endpoint_type(endpoint_type: int, version: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(0, ErrorCode.INVALID_REQUEST if version == 0 else code, message)
