"""Operations: move the broker's time, and let one member or transaction expire."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from oncelog.broker.control.errors import InvalidArgumentError, NotRunningError
from oncelog.broker.control.names import check_word, not_found
from oncelog.broker.control.types import ClockInfo, datetime_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import trio

    from oncelog.broker.control.moving_time import TimeMove
    from oncelog.broker.control.types import Occurrence
    from oncelog.broker.node.node import Node
    from oncelog.broker.seams.clock import MovableClock
    from oncelog.coordinator.groups.group import Group

Members: TypeAlias = Literal["keep", "expire"]
"""Whether members with an open connection stay or expire when time is moved."""
MEMBERS: tuple[Members, ...] = ("keep", "expire")

MOVE_TIMEOUT_S = 30.0
"""Seconds of real time that a move may take by default."""
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: no datetime goes beyond."""


class Timed(Protocol):
    """What has a time that a test moves: a `ControlledBroker` or a `ControlledCluster`."""

    clock: MovableClock
    moving_time: trio.Lock

    @property
    def serving(self) -> Sequence[Node]:
        """The nodes that serve. Raises NotRunningError."""

    def time_move(self) -> TimeMove:
        """Return a move of its time. Raises NotRunningError."""


async def clock(broker: Timed) -> ClockInfo:
    """Return the broker's time."""
    return ClockInfo(broker.clock.now_ms(), broker.clock.is_frozen, round(broker.clock.ahead_ms))


async def clock_advance(
    broker: Timed, *, seconds: float, members: Members = "keep", timeout: float = MOVE_TIMEOUT_S
) -> list[Occurrence]:
    """Move time ahead. Returns the work that came due, in order, when it is done.

    Raises InvalidArgumentError; WaitTimeoutError after ``timeout`` seconds of real time.
    """
    _check_number("seconds", seconds)
    check_word("members", members, MEMBERS)
    _check_timeout(timeout)
    async with broker.moving_time:
        _check_reachable(broker.clock.now_ms() + seconds * 1000)
        return await _advance(broker, seconds, members, timeout)


async def clock_set(
    broker: Timed, *, wall_ms: int, members: Members = "keep", timeout: float = MOVE_TIMEOUT_S
) -> list[Occurrence]:
    """Move time ahead to a wall time, in milliseconds since 1970-01-01 UTC; see `clock_advance`."""
    _check_number("wall_ms", wall_ms)
    check_word("members", members, MEMBERS)
    _check_timeout(timeout)
    async with broker.moving_time:
        now_ms = broker.clock.now_ms()
        if wall_ms < now_ms:
            raise InvalidArgumentError(
                f"time cannot be set back: the broker's time is {datetime_of(now_ms)}, "
                f"{(now_ms - wall_ms) / 1000:g} s after {datetime_of(int(wall_ms))}"
            )
        _check_reachable(wall_ms)
        return await _advance(broker, (wall_ms - now_ms) / 1000, members, timeout)


async def _advance(broker: Timed, seconds: float, members: Members, timeout: float) -> list[Occurrence]:
    try:
        move = broker.time_move()
    except NotRunningError:  # it was stopped: the next start finds what is due
        broker.clock.advance(seconds)
        return []
    await move.advance(seconds, keep_members=members == "keep", timeout_s=timeout)
    return move.happened


async def clock_freeze(broker: Timed) -> None:
    """Let time stand still. Nothing happens if it stands already."""
    async with broker.moving_time:
        broker.clock.freeze()


async def clock_resume(broker: Timed) -> None:
    """Let time run on from where it stands. Nothing happens if it runs."""
    async with broker.moving_time:
        broker.clock.resume()


async def expire_member(
    broker: Timed, *, group_id: str, member: str, timeout: float = MOVE_TIMEOUT_S
) -> list[Occurrence]:
    """Let the session of a member expire now. ``member`` is its member id, or ``group.instance.id``.

    Returns the work that followed. Raises NotFoundError; InvalidArgumentError if the member waits for a rebalance, when
    its session cannot expire; WaitTimeoutError.
    """
    _check_timeout(timeout)
    async with broker.moving_time:
        move = broker.time_move()
        await move.settle(timeout, lambda: expire_session(broker.serving, group_id, member))
        return move.happened


def expire_session(nodes: Sequence[Node], group_id: str, member: str) -> None:
    """Let a member's session come due. Raises NotFoundError, InvalidArgumentError."""
    from oncelog.coordinator.groups.classic.group import ClassicGroup
    from oncelog.coordinator.groups.classic.timers import session_key
    from oncelog.coordinator.groups.modern import timers

    shards = [
        (context.shard, node.groups.runtime)
        for node in nodes
        for context in node.groups.runtime.loaded.values()
    ]
    here = next((one for one in shards if group_id in one[0].groups), None)
    if here is None:
        raise not_found("group", group_id, [name for shard, _ in shards for name in shard.groups])
    found, runtime = here
    group = found.groups[group_id]
    member_id = _member_id(group, member)
    if isinstance(group, ClassicGroup):
        key = session_key(found, group_id, member_id)
    else:
        key = timers.key(found, timers.session_kind(group.group_type), group_id, member_id)
    if key not in runtime.timer.deadlines or group.has_waiting_request(member_id):
        raise InvalidArgumentError(
            f"member {member} of group {group_id} waits for the response to its JoinGroup or SyncGroup; "
            "until it has that, its session cannot expire"
        )
    runtime.timer.deadlines.hasten(key)


def _member_id(group: Group, member: str) -> str:
    """Return the id of a member, given by it or by its instance id. Raises NotFoundError."""
    if group.expects(member):
        return member
    found = group.static_members.get(member)
    if found is None:
        raise not_found(f"member of group {group.group_id}", member, group.member_ids())
    return found


async def expire_transaction(
    broker: Timed, *, transactional_id: str, timeout: float = MOVE_TIMEOUT_S
) -> list[Occurrence]:
    """Let the open transaction of a transactional id time out now: it is aborted, and its producer fenced.

    Returns the work that followed, when the markers are written. Raises NotFoundError; InvalidArgumentError if no
    transaction is open; WaitTimeoutError; KafkaError if it cannot be stored.
    """
    _check_timeout(timeout)
    async with broker.moving_time:
        move = broker.time_move()
        await move.settle(timeout, lambda: abort_transaction(broker.serving, transactional_id))
        return move.happened


def abort_transaction(nodes: Sequence[Node], transactional_id: str) -> None:
    """Abort an open transaction as after its time-out. Raises NotFoundError, InvalidArgumentError, KafkaError."""
    from oncelog.coordinator.transactions import expiry
    from oncelog.coordinator.transactions.state import TransactionState

    shards = [context.shard for node in nodes for context in node.transactions.runtime.loaded.values()]
    for shard in shards:
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            continue
        if transaction.metadata.state is not TransactionState.ONGOING:
            raise InvalidArgumentError(
                f"transactional id {transactional_id} has no open transaction: "
                f"its state is {transaction.metadata.state.label}"
            )
        expiry.abort(shard, transactional_id, transaction)
        return
    raise not_found("transactional id", transactional_id, [name for it in shards for name in it.transactions])


def _check_number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidArgumentError(f"{name}={value!r}: expected a number")
    if value < 0:
        raise InvalidArgumentError(f"{name}={value!r}: time does not go back")


def _check_timeout(timeout: float) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidArgumentError(f"timeout={timeout!r}: expected seconds, more than 0")


def _check_reachable(wall_ms: float) -> None:
    if wall_ms > LAST_MS:
        raise InvalidArgumentError("time ends with the year 9999")
