"""What the APIs 83 to 87 have in common: each row of a request is about one share partition, with a result of its own.

Source: ``ShareCoordinatorService``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from oncelog.broker.requests.request import Pending
from oncelog.broker.share.at_once import each
from oncelog.broker.share.responses import by_topic
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.broker.share.sessions import PartitionKey
    from oncelog.wire.schema import Uuid

R = TypeVar("R")


def answered(
    request: Any,
    response: R,
    topic_result: Callable[[Uuid, list[Any]], Any],
    row_result: Callable[[int, int, str | None], Any],
    call: Callable[[Uuid, Any], Awaitable[Any]],
) -> Pending[R]:
    """Return the response, with the row that ``call`` makes for each topic id and row of the request, or the error's
    row. As in Kafka it is empty if a group id or rows are missing.
    """
    return Pending(_answer(request, response, topic_result, row_result, call))


async def _answer(
    request: Any,
    response: Any,
    topic_result: Callable[[Uuid, list[Any]], Any],
    row_result: Callable[[int, int, str | None], Any],
    call: Callable[[Uuid, Any], Awaitable[Any]],
) -> Any:
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return response
    wanted = [(topic.topic_id, row) for topic in request.topics for row in topic.partitions]
    rows: dict[PartitionKey, Any] = {(topic_id, row.partition): None for topic_id, row in wanted}

    async def one(partition: tuple[Uuid, Any]) -> None:
        topic_id, row = partition
        try:
            result = await call(topic_id, row)
        except KafkaError as error:
            result = row_result(row.partition, error.code, error.message)
        rows[topic_id, row.partition] = result

    await each(wanted, one)
    response.results = [topic_result(topic_id, results) for topic_id, results in by_topic(rows).items()]
    return response
