"""Moving the broker time of the nodes that run, so that all that comes due happens in order and at its time.

Time jumps from deadline to deadline. There are two kinds of them:

- Deadlines of single things: a member's session, a rebalance, a transaction, a record's lock. Time stops at each,
  in order, and goes on when all that follows from it is done: the rebalance has begun, the markers are written.
- Intervals of periodic tasks: retention, compaction, expiry of offsets, ids and producers, checkpoints. Such a task
  does not run as often as its interval fits into the jump, but where a stop is further than its interval, and once
  more at the end, as if its time had just come.

Nodes of a cluster that run, and reach each other, keep their sessions and stay in sync, as if they had gone on with
heartbeats and fetches: `ClusterTime`. The sessions of the others are deadlines, too.

Clients live in real time. So a member whose connection is open counts as if it had sent all heartbeats, and all
requests that the group waits for: deadlines that are only for such members move along with the jump.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from functools import partial
from typing import Protocol

import trio

from oncelog.broker.control.due import occurrence
from oncelog.broker.control.errors import WaitTimeoutError
from oncelog.broker.control.types import Occurrence
from oncelog.broker.coordinators.marker_writer import END_OF_TRANSACTION
from oncelog.broker.node.node import Node
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.broker.seams.clock import MovableClock, real_time
from oncelog.coordinator.groups.group import Group
from oncelog.coordinator.groups.group_deadline import GroupDeadline
from oncelog.wire.topic_names import INTERNAL_TOPICS

ROUNDS = 3
"""Rounds of the loop without anything to do after which all is done. A task that was woken runs in the next one."""
ROUNDS_AT_BEGIN = 10
"""At the beginning there are more, so that connections notice that their peers have closed them."""
LOOKS_IN_A_ROW = 100
"""Looks at the loop without a pause. After them, something waits for a thread or a peer."""
PAUSE_S = 0.001
"""Seconds of real time between looks after that."""


class Between(Protocol):
    """What is between nodes and their controller, while time is moved."""

    @property
    def background(self) -> BackgroundWork:
        """The controller's work."""

    def next_deadline(self) -> float:
        """When the next session ends of a node that does not reach the controller, in the clock's seconds."""

    def move_along(self, seconds: float) -> None:
        """Time is moved ahead by that: those that reach each other would have heard of each other meanwhile."""

    def under_way(self) -> list[str]:
        """Return what follows from earlier events and is not done yet."""


class TimeMove:
    """One move of the time of ``nodes``, whose clock is ``clock``. ``check`` raises an error, such as NotRunningError,
    once a node has ended; ``is_paused`` tells whether a rule holds every request of a client id. ``between``: where
    there are several nodes.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        clock: MovableClock,
        check: Callable[[], None],
        is_paused: Callable[[str], bool] = lambda client_id: False,
        between: Between | None = None,
    ) -> None:
        self._nodes = [_NodeTime(node, is_paused) for node in nodes]
        self._clock = clock
        self._check = check
        self._between = between
        self._under_way: list[str] = []
        self._ends: set[str] = set()
        """The ends of transactions to wait for. Clients end others meanwhile."""
        self.happened: list[Occurrence] = []
        """The work that has come due so far, in order."""

    async def advance(self, seconds: float, *, keep_members: bool, timeout_s: float) -> None:
        """Move time ahead by ``seconds``, and return when all that comes due is done.

        Meanwhile time moves only by the jumps. Raises WaitTimeoutError after ``timeout_s`` seconds of real time;
        time has then been moved as far as the error says. Raises what ``check`` raises.
        """
        clock = self._clock
        was_frozen = clock.is_frozen
        clock.freeze()
        try:
            begin = clock.monotonic()
            await self._done(self._advance(begin + seconds, keep_members), timeout_s)
        except WaitTimeoutError as error:
            moved = clock.monotonic() - begin
            raise WaitTimeoutError(f"{error}; time was moved by {moved:g} of {seconds:g} s") from None
        finally:
            if not was_frozen:
                clock.resume()

    async def settle(self, timeout_s: float, change: Callable[[], None] = lambda: None) -> None:
        """Make a change, when all that is due already is done, and wait until what follows from it is done.

        Raises WaitTimeoutError, and what ``check`` and ``change`` raise.
        """

        async def settled() -> None:
            await self._settle()
            change()
            await self._settle()

        await self._done(settled(), timeout_s)

    async def _done(self, work: Coroutine[None, None, None], timeout_s: float) -> None:
        backgrounds = self._backgrounds()
        for node_id, background in backgrounds:
            background.listener = partial(self._note, node_id)
        try:
            with real_time.move_on_after(timeout_s) as scope:
                await work
        finally:
            for _, background in backgrounds:
                background.listener = None
        if scope.cancelled_caught:
            names = ", ".join(self._under_way) or "other tasks, which leave no time"
            raise WaitTimeoutError(f"not done after {timeout_s:g} s of real time: {names}")

    def _backgrounds(self) -> list[tuple[int | None, BackgroundWork]]:
        """Return what tells of work that came due, with the node's id if there are several."""
        found = [(time.node_id, time.node.logs.background) for time in self._nodes]
        if self._between is None:
            return [(None, background) for _, background in found]
        return [*found, (None, self._between.background)]

    def _note(self, node_id: int | None, what: str, about: Mapping[str, str | int]) -> None:
        if (
            about.get("topic") in INTERNAL_TOPICS
        ):  # how groups and transactions are stored is not the test's concern
            return
        if what == "transaction timed out":
            self._ends.add(f"{END_OF_TRANSACTION}{about['transactional_id']}")
        self.happened.append(occurrence(self._clock.now_ms(), what, about, node_id))

    async def _advance(self, end: float, keep_members: bool) -> None:
        # What is due already, what is still being loaded, and connections whose peers are gone.
        await self._settle(ROUNDS_AT_BEGIN)
        while True:
            self._jump(end, keep_members)
            await self._settle()
            if self._clock.monotonic() >= end:
                break
        for time in self._nodes:
            time.hasten_possible()
        self._clock.end_pauses()
        await self._settle()

    def _jump(self, end: float, keep_members: bool) -> None:
        """Jump to the next deadline, but not beyond ``end``."""
        now = self._clock.monotonic()
        moved_along = [time.moved_along() if keep_members else set() for time in self._nodes]
        at = min(
            end,
            *(time.next_possible(keys) for time, keys in zip(self._nodes, moved_along, strict=True)),
            *(() if self._between is None else (self._between.next_deadline(),)),
        )
        for time, keys in zip(self._nodes, moved_along, strict=True):
            time.groups.postpone(keys, at - now)
        if self._between is not None:
            self._between.move_along(at - now)
        self._clock.advance_to(at)
        for time in self._nodes:
            time.hasten_possible(now)

    # -- when it is done

    async def _settle(self, rounds: int = ROUNDS) -> None:
        """Wait until no task of a node does anything, or is about to, because its time had come.

        A task that was woken runs in the next round of the loop, and says then what it does. So ``rounds`` in a row
        without anything mean that nothing is left.
        """
        quiet = looks = 0
        while quiet < rounds:
            await trio.lowlevel.checkpoint()
            self._check()
            self._under_way = self._what_is_under_way()
            quiet = 0 if self._under_way else quiet + 1
            looks += 1
            if looks > LOOKS_IN_A_ROW and self._under_way:
                await real_time.sleep(PAUSE_S)

    def _what_is_under_way(self) -> list[str]:
        names = [] if self._between is None else self._between.under_way()
        for time in self._nodes:
            names += time.under_way(self._ends, self._clock.monotonic())
        if self._clock.has_due() and not names:
            names.append("a task whose time has come")
        return names


class _NodeTime:
    """The deadlines of one node, and what it does."""

    def __init__(self, node: Node, is_paused: Callable[[str], bool]) -> None:
        self.node = node
        self.node_id = node.config.static.node_id
        self.groups = node.groups.runtime.timer.deadlines
        self._others = node.transactions.runtime.timer.deadlines, node.shares.timer.deadlines
        self._is_paused = is_paused

    def next_possible(self, but: set[Hashable]) -> float:
        """When the next deadline may come due, but for those of the groups' keys ``but``."""
        return min(self.groups.next_possible(but), *(one.next_possible() for one in self._others))

    def hasten_possible(self, since: float = float("-inf")) -> None:
        """See `Deadlines`."""
        for deadlines in (self.groups, *self._others):
            deadlines.hasten_possible(since)

    def moved_along(self) -> set[Hashable]:
        """Return the keys of the groups' deadlines that are only for members who live."""
        return {key for key in self.groups if self._moves_along(key)}

    def _moves_along(self, key: Hashable) -> bool:
        if not isinstance(key, GroupDeadline):
            return False
        context = self.node.groups.runtime.loaded.get(key.partition)
        group = None if context is None else context.shard.groups.get(key.group_id)
        if group is None:
            return False
        members = (key.member_id,) if key.member_id else group.awaited_members(key.kind)
        return any(self._is_alive(group, member_id) for member_id in members)

    def _is_alive(self, group: Group, member_id: str) -> bool:
        if self._is_paused(group.client_id_of(member_id)):
            return False
        return group.has_waiting_request(member_id) or self.node.groups.members_heard.is_connected(
            group.group_id, member_id
        )

    def under_way(self, ends: set[str], now: float) -> list[str]:
        """Return what the node does, or is about to, because its time had come. ``ends``: see `TimeMove`."""
        node = self.node
        names = [
            name
            for name in node.logs.background.names()
            if not name.startswith(END_OF_TRANSACTION) or name in ends
        ]
        if not node.logs.is_recovered:
            names.append("recovery of logs")
        coordinators = node.groups, node.transactions, node.share_coordinator
        for runtime in [coordinator.runtime for coordinator in coordinators]:
            if runtime.has_unloaded():
                names.append(f"loading of {runtime.topic}")
            if runtime.timer.deadlines.next_at() <= now:
                names.append(f"deadlines of {runtime.topic}")
        if node.shares.timer.deadlines.next_at() <= now:
            names.append("locks of records")
        return names
