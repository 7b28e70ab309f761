"""Which errors a response reports."""

import pytest

from oncelog.broker.client.errors import error_codes
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.end_txn import EndTxnResponse
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from oncelog.wire.schema import Message

ROWS = [
    AddPartitionsToTxnTopicResult(
        "t", [AddPartitionsToTxnPartitionResult(0, 0), AddPartitionsToTxnPartitionResult(1, 3)]
    )
]


@pytest.mark.parametrize(
    ("response", "codes"),
    [
        (EndTxnResponse(0, 0), ()),
        (EndTxnResponse(0, 48), (ErrorCode.INVALID_TXN_STATE,)),
        (EndTxnResponse(0, 30_000), (ErrorCode.UNKNOWN_SERVER_ERROR,)),
        (ConsumerGroupHeartbeatResponse(error_code=0, assignment=None), ()),
        (FindCoordinatorResponse(coordinators=[Coordinator("g", 1, "h", 1, 0)]), ()),
        (AddPartitionsToTxnResponse(0, 0, [AddPartitionsToTxnResult("id", ROWS)]), (ErrorCode(3),)),
        (AddPartitionsToTxnResponse(0, 7, [AddPartitionsToTxnResult("id", ROWS)]), (ErrorCode(7), ErrorCode(3))),
        (
            FetchResponse(
                0, 0, 0, [FetchableTopicResponse("t", partitions=[PartitionData(n, n % 3)]) for n in range(9)]
            ),
            (ErrorCode(1), ErrorCode(2)),
        ),
    ],
)  # fmt: skip
def test_each_error_once_in_its_order(response: Message, codes: tuple[ErrorCode, ...]) -> None:
    assert error_codes(response) == codes
