"""Bad requests that a Kafka answers with UNKNOWN_SERVER_ERROR, and oncelog with an error that fits, or serves
(docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.differential import Session, produce_request
from compat_tests.every_version.turn import codes_of
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.share.readers import Reader, share_topic
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import ZERO_UUID, Fields

SERVER_ERROR, INVALID_REQUEST = -1, 42
INVALID_RECORD, INVALID_ACKS, NO_SESSION = 87, 21, 70
UNKNOWN_TOPIC = 3
NO_TOKENS_HERE = 64
"""DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the client has not logged in."""

MARKER: Fields = {"transaction_result": True, "coordinator_epoch": 0}


def markers(name: str, producer_id: int, epoch: int) -> Fields:
    topics = [{"name": name, "partition_indexes": [0]}]
    return {"markers": [{**MARKER, "producer_id": producer_id, "producer_epoch": epoch, "topics": topics}]}


def listed(name: str) -> Fields:
    row = {"partition_index": 0, "timestamp": -1}
    return {"isolation_level": 7, "topics": [{"name": name, "partitions": [row]}]}


def altered(name: str) -> Fields:
    row = {"partition_index": -2, "start_offset": 0}
    return {"group_id": name, "topics": [{"topic_name": name, "partitions": [row]}]}


CASES: dict[str, tuple[str, int, Callable[[str], Fields], set[int], set[int]]] = {
    "a topic with neither name nor id": (
        *("Metadata", 12, lambda name: {"topics": [{"name": None, "topic_id": ZERO_UUID}]}),
        *({SERVER_ERROR}, {INVALID_REQUEST}),
    ),
    "an unknown isolation level": ("ListOffsets", 8, listed, {SERVER_ERROR}, {0}),
    "a session that there cannot be": (
        *("Fetch", 12, lambda name: {"session_id": 2**31 - 1, "session_epoch": 5, "topics": []}),
        *({SERVER_ERROR}, {NO_SESSION}),
    ),
    "acks and records that are none": (
        *("Produce", 12, lambda name: produce_request(name, b"", acks=7)),
        *({INVALID_RECORD}, {INVALID_ACKS}),
    ),
    "a negative share partition": (
        "AlterShareGroupOffsets",
        0,
        altered,
        {SERVER_ERROR},
        {0, INVALID_REQUEST},
    ),
    "markers without a producer": (
        *("WriteTxnMarkers", 1, lambda name: markers(name, -1, 0)),
        *({SERVER_ERROR}, {INVALID_REQUEST}),
    ),
    "markers without an epoch": (
        *("WriteTxnMarkers", 1, lambda name: markers(name, 5, -1)),
        *({SERVER_ERROR}, {INVALID_REQUEST}),
    ),
    "a token for an owner without a type": (
        "CreateDelegationToken",
        3,
        lambda name: {"owner_principal_type": None, "owner_principal_name": "a", "max_lifetime_ms": -1},
        {SERVER_ERROR},
        {NO_TOKENS_HERE},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_requests(bootstrap: str, target: str, name: str, case: str) -> None:
    api, version, values, theirs, ours = CASES[case]
    session = Session(bootstrap)
    session.topic(name)
    wait_for_coordinator(session, name)
    deadline = now_ms() + WAIT_MS
    # Kafka's group coordinator learns of a topic a moment after the response to its creation.
    while UNKNOWN_TOPIC in codes_of(response := session.call_unobserved(api, version, values(name))):
        assert now_ms() < deadline, response
    assert codes_of(response) == (theirs if target == "kafka" else ours), response
    session.end()


def test_offsets_of_no_share_partitions(bootstrap: str, target: str, name: str) -> None:
    session = Session(bootstrap)
    one = Reader(session, share_topic(session, name, 2), "one", name)
    one.begin()
    topics = [{"topic_name": name, "partitions": []}]
    asked = {"groups": [{"group_id": name, "topics": topics}]}
    response = session.call_unobserved("DescribeShareGroupOffsets", 1, asked)
    assert codes_of(response) == ({SERVER_ERROR} if target == "kafka" else {0}), response
    session.end()
