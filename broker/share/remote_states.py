"""Calls of a `SharePersister` as requests to the share coordinator on another node: the APIs 83 to 87, each for one
share partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.network.network import LinkDownError
from oncelog.coordinator.share.state import ShareState, StateBatch, StateSummary
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages import delete_share_group_state as deleting
from oncelog.wire.messages import initialize_share_group_state as initializing
from oncelog.wire.messages import read_share_group_state as reading
from oncelog.wire.messages import read_share_group_state_summary as summing
from oncelog.wire.messages import write_share_group_state as writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.network.network import Link
    from oncelog.coordinator.share.state import SharePartitionKey


class _Api(NamedTuple):
    version: int
    request: Callable[[str, list[Any]], Any]
    """The request for a group and its topics."""
    topic: Callable[[bytes, list[Any]], Any]
    row: Callable[..., Any]
    """The row of a partition and the call's parameters."""
    result: Callable[[Any], Any]
    """The call's result, from the row of the response."""


def _nothing(row: Any) -> None:
    """Return the result of a call that has none."""


def _written(
    partition: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[StateBatch],
) -> writing.PartitionData:
    rows = [writing.StateBatch(*batch) for batch in batches]
    return writing.PartitionData(
        partition, state_epoch, leader_epoch, start_offset, delivery_complete_count, rows
    )


def _state(row: reading.PartitionResult) -> ShareState:
    batches = tuple(
        StateBatch(it.first_offset, it.last_offset, it.delivery_state, it.delivery_count)
        for it in row.state_batches
    )
    return ShareState(row.state_epoch, row.start_offset, batches)


def _summary(row: summing.PartitionResult) -> StateSummary:
    return StateSummary(row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count)


_APIS = {
    "initialize": _Api(
        0,
        initializing.InitializeShareGroupStateRequest,
        initializing.InitializeStateData,
        initializing.PartitionData,
        _nothing,
    ),
    "read": _Api(0, reading.ReadShareGroupStateRequest, reading.ReadStateData, reading.PartitionData, _state),
    "write": _Api(1, writing.WriteShareGroupStateRequest, writing.WriteStateData, _written, _nothing),
    "delete": _Api(
        0, deleting.DeleteShareGroupStateRequest, deleting.DeleteStateData, deleting.PartitionData, _nothing
    ),
    "summary": _Api(
        1,
        summing.ReadShareGroupStateSummaryRequest,
        summing.ReadStateSummaryData,
        summing.PartitionData,
        _summary,
    ),
}
"""By the name of the method of `SharePersister`."""


async def call_remote(link: Link, name: str, key: SharePartitionKey, values: Sequence[Any]) -> Any:
    """Call the method ``name`` of the share coordinator at the end of ``link``; return its result.

    Raises KafkaError as the coordinator does, and NETWORK_EXCEPTION if nobody knows whether the call had an effect.
    """
    api = _APIS[name]
    request = api.request(key.group_id, [api.topic(key.topic_id, [api.row(key.partition, *values)])])
    try:
        response = await link.call(request, api.version)
    except LinkDownError as error:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
    if not response.results:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id is empty.")
    [row] = response.results[0].partitions
    if row.error_code:
        raise KafkaError(ErrorCode(row.error_code), row.error_message)
    return api.result(row)
