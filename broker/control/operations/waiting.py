"""Operations: the requests of clients, and waits for requests, records, groups and transactions. No wait polls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from oncelog.broker.control import views
from oncelog.broker.control.changes import check_timeout, wait_until
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError, NotRunningError
from oncelog.broker.control.names import check_word
from oncelog.broker.control.records import ISOLATION_LEVELS, RecordReader, partitions_of
from oncelog.broker.control.requests import checked_filter, find_requests, recent, wait_for_request
from oncelog.broker.control.types import group_matches
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.control.request_types import Request
    from oncelog.broker.control.types import GroupInfo, IsolationLevel, Offsets, Record, TransactionInfo
    from oncelog.broker.coordinators.runtime import CoordinatorRuntime
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.node.node import Node

GROUP_STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Reconciling",
)
TRANSACTION_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

T = TypeVar("T")


class Wait(Generic[T]):
    """A wait for something in a broker to match, from now on: what ``look`` returns, such as a group."""

    def __init__(self, broker: ControlledBroker, look: Callable[[], Awaitable[T]], timeout: float) -> None:
        """Raises InvalidArgumentError for the time-out."""
        self._timeout = check_timeout(timeout)
        self._broker = broker
        self._look = look
        self._since = broker.journal.last_number

    async def until(
        self,
        matches: Callable[[T], bool],
        failed: str,
        describe: Callable[[T], str],
        logs: Callable[[Node], list[PartitionLog]],
    ) -> T:
        """Return what ``matches``; it need not exist yet. ``logs`` are those whose changes count. Raises
        WaitTimeoutError: that the wait ``failed``, what there is instead, and the requests since its begin.
        """
        journal = self._broker.journal

        async def check() -> T | None:
            try:
                found = await self._look()
            except (NotFoundError, NotRunningError):
                return None
            return found if matches(found) else None

        async def explain() -> str:
            try:
                instead = describe(await self._look())
            except (NotFoundError, NotRunningError) as error:
                instead = str(error)
            text = f"{failed} in {self._timeout:g} s: {instead}"
            return f"{text}\nsince the wait began: {recent(journal, self._since)}"

        def watched() -> list[PartitionLog]:
            try:
                return logs(self._broker.node)
            except (NotFoundError, NotRunningError, KafkaError):
                return []

        return await wait_until(journal.changes, check, watched, self._timeout, explain)


def check_number(name: str, number: int | None) -> None:
    """Raises InvalidArgumentError for what is no number from 0 on, or None."""
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise InvalidArgumentError(f"{name}={number!r}: expected a number from 0 on")


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
    wait = Wait(broker, lambda: views.group(broker.node, group_id=group_id, isolation=isolation), timeout)
    check_word("isolation", isolation, ISOLATION_LEVELS)
    if state is not None:
        check_word("state", state, GROUP_STATES)
    wanted = [
        text
        for text, value in (
            (f"state {state}", state),
            (f"{members} members", members),
            (f"a lag of at most {lag}", lag),
            (f"committed {committed}", committed),
        )
        if value is not None
    ]
    if not wanted:
        raise InvalidArgumentError("nothing to wait for: give state, members, lag or committed")
    for name, number in (("members", members), ("lag", lag)):
        check_number(name, number)

    def describe(found: GroupInfo) -> str:
        clients = ", ".join(member.client_id for member in found.members)
        text = f"it is {found.state} with {len(found.members)} members{clients and f' ({clients})'}"
        if lag is not None:
            text += f", lag {found.lag or 'unknown: no offset is committed and no topic subscribed'}"
        if committed is not None:
            text += f", committed {found.committed}"
        return text

    return await wait.until(
        lambda found: group_matches(found, state=state, members=members, lag=lag, committed=committed),
        f"group {group_id} has not got {' and '.join(wanted)}",
        describe,
        lambda node: [_log_of(node, node.groups.runtime, group_id)],
    )


async def wait_for_transaction(
    broker: ControlledBroker, *, transactional_id: str, state: str, timeout: float = 10
) -> TransactionInfo:
    """Wait until the transaction of a transactional id has that state; return it.

    The id need not exist yet. Raises WaitTimeoutError, InvalidArgumentError.
    """
    wait = Wait(broker, lambda: views.transaction(broker.node, transactional_id=transactional_id), timeout)
    check_word("state", state, TRANSACTION_STATES)
    return await wait.until(
        lambda found: found.state == state,
        f"the transaction of {transactional_id} was not {state}",
        lambda found: (
            f"it is {found.state}, of producer {found.producer_id} with epoch {found.producer_epoch}"
        ),
        lambda node: [_log_of(node, node.transactions.runtime, transactional_id)],
    )


def _log_of(node: Node, runtime: CoordinatorRuntime[Any], key: str) -> PartitionLog:
    """Return the log of the coordinator's partition for ``key``. Raises KafkaError if there is none yet."""
    return node.cluster.leader_partition(runtime.topic, runtime.partition_for(key)).log
