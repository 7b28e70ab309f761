"""Operations: the requests of clients, and waits for requests, records, groups and transactions. No wait polls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from oncelog.broker.control import views
from oncelog.broker.control.changes import check_timeout, wait_until
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError, NotRunningError
from oncelog.broker.control.names import check_word
from oncelog.broker.control.records import ISOLATION_LEVELS, RecordReader, partitions_of
from oncelog.broker.control.requests import checked_filter, find_requests, recent, wait_for_request
from oncelog.broker.control.wanted import wanted_group, wanted_transaction
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.control.request_types import Request
    from oncelog.broker.control.types import GroupInfo, IsolationLevel, Offsets, Record, TransactionInfo
    from oncelog.broker.control.wanted import Wanted
    from oncelog.broker.coordinators.runtime import CoordinatorRuntime
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.node.node import Node

T = TypeVar("T")


async def wait_until_wanted(
    broker: ControlledBroker,
    wanted: Wanted[T],
    look: Callable[[], Awaitable[T]],
    logs: Callable[[Node], list[PartitionLog]],
    timeout: float,
) -> T:
    """Wait until ``look`` returns the ``wanted`` state; return it. It need not exist yet. ``logs``: those whose changes
    count. Raises WaitTimeoutError: what there is instead, and the requests since the wait began; InvalidArgumentError
    for the time-out.
    """
    check_timeout(timeout)
    journal = broker.journal
    since = journal.last_number

    async def check() -> T | None:
        try:
            found = await look()
        except (NotFoundError, NotRunningError):
            return None
        return found if wanted.matches(found) else None

    async def explain() -> str:
        try:
            instead = wanted.describe(await look())
        except (NotFoundError, NotRunningError) as error:
            instead = str(error)
        text = f"{wanted.failed} in {timeout:g} s: {instead}"
        return f"{text}\nsince the wait began: {recent(journal, since)}"

    def watched() -> list[PartitionLog]:
        try:
            return logs(broker.node)
        except (NotFoundError, NotRunningError, KafkaError):
            return []

    return await wait_until(journal.changes, check, watched, timeout, explain)


async def requests(
    broker: Controlled,
    *,
    api: str | None = None,
    client_id: str | None = None,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    error: str | None = None,
    limit: int | None = None,
) -> list[Request]:
    """Return the latest requests that match all given arguments, the newest last. Raises InvalidArgumentError."""
    wanted = checked_filter(
        api=api,
        client_id=client_id,
        topic=topic,
        group=group,
        transactional_id=transactional_id,
        error=error,
    )
    return await find_requests(broker.journal, wanted, limit)


async def wait_for(
    broker: Controlled,
    *,
    api: str,
    client_id: str | None = None,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    error: str | None = "NONE",
    times: int = 1,
    after: int = 0,
    timeout: float = 10,
) -> Request:
    """Wait until ``times`` matching requests are done; return the last of them. Requests up to number ``after`` do not
    count.

    Raises WaitTimeoutError, InvalidArgumentError.
    """
    wanted = checked_filter(
        api=api,
        client_id=client_id,
        topic=topic,
        group=group,
        transactional_id=transactional_id,
        error=error,
    )
    return await wait_for_request(broker.journal, wanted, times=times, after=after, timeout=timeout)


async def wait_for_records(
    broker: ControlledBroker,
    *,
    topic: str,
    count: int = 1,
    isolation: IsolationLevel = "read_uncommitted",
    partition: int | None = None,
    timeout: float = 10,
) -> list[Record]:
    """Wait until a topic has at least so many records; return them all, by partition and offset.

    The topic need not exist yet. Raises WaitTimeoutError, InvalidArgumentError.
    """
    check_timeout(timeout)
    if not isinstance(count, int) or count < 0:
        raise InvalidArgumentError(f"count={count!r}: expected a number of records")
    reader = RecordReader(topic, isolation=isolation, partition=partition)
    found: list[Record] = []

    async def check() -> list[Record] | None:
        before = reader.topic_id
        try:
            new = await reader.read(broker.node)
        except (NotFoundError, NotRunningError):
            return None
        if reader.topic_id != before:
            found.clear()
        found.extend(new)
        if len(found) < count:
            return None
        return sorted(found, key=lambda one: (one.partition, one.offset))

    def logs() -> list[PartitionLog]:
        try:
            return reader.logs(broker.node)
        except (NotFoundError, NotRunningError, KafkaError):
            return []

    async def explain() -> str:
        try:
            info = await views.topic(broker.node, name=topic)
            partitions_of(broker.node, topic, partition)
        except (NotFoundError, NotRunningError) as error:
            return f"topic {topic} has not got {count} records in {timeout:g} s: {error}"
        text = f"topic {topic} has {len(found)} records, not {count}, after {timeout:g} s ({isolation})"
        held = [row for row in info.partitions if row.last_stable_offset < row.high_watermark]
        if isolation == "read_committed" and held:
            opened = [one.transactional_id for one in await views.transactions(broker.node) if one.is_open]
            text += "; open transactions hold back what follows: " + ", ".join(
                f"{topic}-{row.partition} from offset {row.last_stable_offset} to {row.high_watermark}"
                for row in held
            )
            text += f" (transactional ids: {', '.join(opened)})" if opened else ""
        return text

    return await wait_until(broker.journal.changes, check, logs, timeout, explain)


async def wait_for_group(
    broker: ControlledBroker,
    *,
    group_id: str,
    state: str | None = None,
    members: int | None = None,
    lag: int | None = None,
    committed: Offsets | None = None,
    isolation: IsolationLevel = "read_uncommitted",
    timeout: float = 10,
) -> GroupInfo:
    """Wait until a group has that state, that number of members, at most that lag in all, and has committed at least
    those offsets; return it.

    The group need not exist yet. Raises WaitTimeoutError, InvalidArgumentError.
    """
    check_word("isolation", isolation, ISOLATION_LEVELS)
    return await wait_until_wanted(
        broker,
        wanted_group(group_id, state=state, members=members, lag=lag, committed=committed),
        lambda: views.group(broker.node, group_id=group_id, isolation=isolation),
        lambda node: [_log_of(node, node.groups.runtime, group_id)],
        timeout,
    )


async def wait_for_transaction(
    broker: ControlledBroker, *, transactional_id: str, state: str, timeout: float = 10
) -> TransactionInfo:
    """Wait until the transaction of a transactional id has that state; return it.

    The id need not exist yet. Raises WaitTimeoutError, InvalidArgumentError.
    """
    return await wait_until_wanted(
        broker,
        wanted_transaction(transactional_id, state),
        lambda: views.transaction(broker.node, transactional_id=transactional_id),
        lambda node: [_log_of(node, node.transactions.runtime, transactional_id)],
        timeout,
    )


def _log_of(node: Node, runtime: CoordinatorRuntime[Any], key: str) -> PartitionLog:
    """Return the log of the coordinator's partition for ``key``. Raises KafkaError if there is none yet."""
    return node.cluster.leader_partition(runtime.topic, runtime.partition_for(key)).log
