"""Random requests for a broker, direct and through a proxy, and what the responses must be."""

from __future__ import annotations

import random

from oncelog.wire.framing import encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.schema import Message
from tests.common.batches import batch, record
from tests.harness.requests import fetch_request, produce_request

TOPIC = "t"
LARGE_BYTES = 700_000


def random_requests(rng: random.Random, count: int, *, large: bool = True) -> list[tuple[bytes, bool]]:
    """Return frames, each with whether it gets a response. Correlation ids count from 1."""
    frames = []
    for number in range(1, count + 1):
        request, version = _random_request(rng, large)
        client_id = rng.choice((None, "", "client", "c" * 300))
        frames.append(
            (encode_request(request, version, number, client_id), getattr(request, "acks", None) != 0)
        )
    return frames


def _random_request(rng: random.Random, large: bool) -> tuple[Message, int]:
    kind = rng.randrange(9)
    if kind <= 2:
        size = rng.choice((1, 100, 5_000, LARGE_BYTES if large and rng.random() < 0.3 else 10))
        request = produce_request(TOPIC, batch([record(None, bytes(size))]), acks=rng.choice((-1, 0, 1)))
        if rng.random() < 0.2:
            request.topic_data[0].name = "none"
            request.acks = 1
        return request, rng.choice((3, 8, 9, 12))
    if kind <= 4:
        return fetch_request(TOPIC, rng.choice((0, 0, 1, 10**6))), rng.choice((4, 11, 12))
    if kind == 5:
        return MetadataRequest([MetadataRequestTopic(name=TOPIC)]), rng.choice((1, 9, 12))
    if kind == 6:
        return rng.choice(
            (
                (ApiVersionsRequest("a", "1"), rng.choice((3, 5))),
                (ApiVersionsRequest("a", "1", "another", 1), 5),
                (FindCoordinatorRequest(coordinator_keys=["g"]), 4),
                (FindCoordinatorRequest(key="g"), 1),
                (DescribeClusterRequest(), 1),
            )
        )
    if kind == 7:
        partition = ListOffsetsPartition(0, -1, rng.choice((-1, -2)))
        return ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [partition])]), 7
    return InitProducerIdRequest(None, 1000), 4
