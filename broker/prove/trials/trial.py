"""`Trial`: one run of the program against a broker of its own, disturbed at one step, or at two.

A trial's loop looks at the program and at the broker every few milliseconds: what has ended is started again, until the
program has nothing more to do. The disturbance itself waits for no turn of the loop: the program is killed, or stands
still, in the moment in which the rule fires, before anything else happens to its request.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from oncelog.broker.control.errors import (
    BrokerFailedError,
    InvalidArgumentError,
    NotFoundError,
    NotRunningError,
)
from oncelog.broker.prove.disturbances import KINDS, OF_NODES, Then
from oncelog.broker.prove.trials.instances import TURN_S, Instances
from oncelog.broker.prove.trials.program import Place, filled, last_line, listener_of
from oncelog.broker.prove.trials.stuck import why_stuck
from oncelog.broker.prove.trials.trial_result import TrialResult
from oncelog.broker.prove.trials.watch import Watch
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.error_groups import first_error
from oncelog.broker.seams.processes import folder_state, make_folder, remove_folder, run_command
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.broker.control.share_types import ShareGroupInfo
    from oncelog.broker.prove.disturbances import Disturbance
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.bench import Ground, Nodes
    from oncelog.broker.prove.trials.program import Program

COUNTER_NTH: Final = 10**9
"""A rule for the n-th of so many never fires: it counts."""
START_S: Final = 2.0
"""How long the broker's ports may be taken when it starts again."""
SETTLED_S: Final = 5.0
"""How long a request may wait for nodes that start again."""
GRACE_S: Final = 5.0
"""How long a program may take to end after SIGTERM, before it is killed."""
BLOCKED: Final = 3
"""Factor on the plan's ``quiet_s``: after so long a quiet, what the dead have left is to blame."""
RESPONSE_S: Final = 1.0
"""How long a program that has stood still waits for the response that was held: a Fetch may wait for records."""
WRITE_S: Final = 3.0
"""How long a leader that is cut off may take to write."""
EXITS_MAX: Final = 8
"""After so many ends of its own, a program is not started again."""
UNDISTURBED_EXITS_MAX: Final = 2
"""`EXITS_MAX` of a service without a disturbance: it cannot be judged."""
LOCK_MOVES_MAX: Final = 10
"""How often the locks of records in a share group are ended."""


class Happening(NamedTuple):
    """A disturbance that has happened."""

    disturbance: Disturbance
    rule_id: int
    program: Program
    request: int
    """The number of the program's last request."""
    node: int
    """The node of the step; 0 where nodes are not disturbed."""
    writes: int
    """The writes (`BrokerState.writes`) at that moment."""


class Trial:
    """A trial of ``plan``. ``folder`` is for it alone; its last part is the trial's name. ``counters`` are rules that
    never act: how often they match says at which writes the broker may die. While the result ``is_behind``, a program
    that seems to have nothing more to do gets ``patience_s`` more seconds: it may wait for a time-out of its own. If it
    ``lacks_outputs`` then, it is started once more. The program may take ``start_s`` seconds to come to its
    disturbance, also where the plan has a shorter limit.
    """

    def __init__(
        self,
        plan: ProofPlan,
        ground: Ground,
        disturbances: Sequence[Disturbance],
        folder: str,
        counters: Sequence[dict[str, object]],
        is_behind: Callable[[TrialResult], bool],
        lacks_outputs: Callable[[TrialResult], bool],
        *,
        patience_s: float,
        start_s: float,
    ) -> None:
        self._plan = plan
        self._output_ends = ground.output_ends
        self._folder = folder
        self._counters = counters
        self._is_behind = is_behind
        self._lacks_outputs = lacks_outputs
        self._patience_s = patience_s
        self._place = Place(f"{folder}/dir", folder.rpartition("/")[2])
        self._watch = Watch(
            lambda: self._broker.journal,
            lambda source: self._bench.state(source),
            lambda: folder_state(self._place.folder),
            self._wait_settled,
        )
        self._bench = ground.bench(plan, self._watch)
        self._broker = self._bench.controlled
        self._variables = ground.variables
        self._result = TrialResult(tuple(disturbances))
        self._instances = Instances(
            plan, self._bench, self._watch, self._result, self._place, ground.variables
        )
        self._rule_ids: list[int] = []
        self._happenings: deque[Happening] = deque()
        """The disturbances that have happened, and what follows them has not."""
        self._handling = 0
        """How many of them are being handled: another may happen meanwhile."""
        self._deadline = real_time.monotonic() + max(start_s, plan.timeout_s)
        self._lock_moves = 0
        self._shells = 0

    async def run(self) -> TrialResult:
        """Run it to its end. Raises CommandError where the program cannot be started, InvalidArgumentError for commands
        of the plan that fail.
        """
        make_folder(self._place.folder)
        began = real_time.monotonic()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._broker.run)
                await self._broker.start()
                try:
                    await self._bench.prepare()
                    await self._run()
                finally:
                    self._instances.kill()
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            await self._instances.wait_ended()
            remove_folder(self._folder)
            await self._bench.clean_up()
        self._result.duration_s = real_time.monotonic() - began
        return self._result

    async def _run(self) -> None:
        result, plan = self._result, self._plan
        if plan.reset is not None:
            code, output = await self._shell(plan.reset)
            if code:
                raise InvalidArgumentError(
                    f"the reset command ended with exit code {code}: {last_line(output)}"
                )
        ids = [self._broker.faults.add({**rule, "nth": COUNTER_NTH}) for rule in self._counters]
        self._broker.faults.on_fired.append(self._on_fired)
        self._add_next_rule()
        await self._instances.start()
        result.stuck = await self._loop(self._is_done)
        await self._collect_at_rest()
        await self._wait_while_behind()
        if result.stuck is None and self._lacks_outputs(result):
            await self._start_once_more()
        self._instances.note_outputs()
        self._broker.faults.on_fired.remove(self._on_fired)
        matched = {state.id: state.matched for state in self._broker.faults.states}
        result.matched = [matched[one] for one in ids]

    async def _wait_while_behind(self) -> None:
        """Give a program more time that is behind, and again after each of its own ends: the next process may catch up,
        or end as well.
        """
        result = self._result
        ends, began = len(result.own_ends), real_time.monotonic()
        first = began
        while (
            result.stuck is None
            and self._is_behind(result)
            and real_time.monotonic() < began + self._patience_s
        ):
            await real_time.sleep(self._plan.quiet_s / 4)
            result.stuck = await self._loop(self._is_done)
            await self._collect_at_rest()
            if len(result.own_ends) > ends:
                ends, began = len(result.own_ends), real_time.monotonic()
            result.waited_s = real_time.monotonic() - first

    async def _start_once_more(self) -> None:
        """Start the program again: what comes then was not lost, a service stood still, or a job ended too early."""
        result = self._result
        before = {one.name: copy(getattr(result, one.name)) for one in fields(result)}
        before["judged_at_s"] = self._watch.now_s
        self._instances.kill()
        self._deadline = real_time.monotonic() + self._plan.timeout_s
        result.stuck = await self._loop(self._is_done)
        await self._collect_at_rest()
        await self._wait_while_behind()
        if result.stuck is None and self._plan.until_exit:
            before["rest"] = copy(result)
        elif result.stuck is None and not self._lacks_outputs(result):
            before["stuck"] = (
                "the program stood still and had not done everything; started again, it did the rest"
            )
        for name, value in before.items():
            setattr(result, name, value)

    async def _wait_settled(self) -> None:
        """Wait until all nodes serve, and each knows it of all others."""
        with real_time.move_on_after(SETTLED_S):
            while not self._bench.is_settled:
                await real_time.sleep(TURN_S)

    async def _start_broker(self) -> None:
        """Start the broker again. The process of another trial, between fork and exec, may have a copy of the old
        broker's listening sockets for a moment.
        """
        ends = real_time.monotonic() + START_S
        while True:
            try:
                return await self._broker.start()
            except BrokerFailedError:
                if real_time.monotonic() > ends:
                    raise
                await real_time.sleep(TURN_S)

    # -- the disturbances

    def _add_next_rule(self) -> None:
        """Put the rule of the next disturbance in force."""
        if len(self._rule_ids) < len(self._result.disturbances):
            rule = self._result.disturbances[len(self._rule_ids)].rule
            self._rule_ids.append(self._broker.faults.add(rule))

    @property
    def _nodes(self) -> Nodes:
        assert self._bench.nodes is not None
        return self._bench.nodes

    def _on_fired(self) -> None:
        """A rule has fired, perhaps that of the next disturbance: kill the program, or let it stand still, at once."""
        result, faults, watch = self._result, self._broker.faults, self._watch
        if result.happened == len(self._rule_ids) or not faults.has_fired(self._rule_ids[-1]):
            return
        disturbance, rule_id = result.disturbances[result.happened], self._rule_ids[-1]
        result.happened += 1
        result.fired_at.append(watch.now_s)
        self._deadline = real_time.monotonic() + self._plan.timeout_s
        program, then = self._instances.of(disturbance), KINDS[disturbance.kind].then
        node = faults.node_of(rule_id) if then in OF_NODES else 0
        request = watch.sightings[-1].number if watch.sightings else 0
        self._happenings.append(Happening(disturbance, rule_id, program, request, node, watch.writes))
        match then:
            case Then.KILL_NODE:
                self._nodes.kill(node)
            case Then.LOSE_LEADER:
                self._nodes.cut_off(node)
            case Then.KILL | Then.KILL_EARLY:
                program.kill()
            case Then.TERMINATE:
                program.terminate()
            case Then.TAKE_OVER | Then.EXPIRE_TRANSACTION:
                program.pause()
        self._add_next_rule()

    async def _handle(self, happening: Happening) -> str | None:
        """Do what follows a disturbance. Returns why the program is stuck meanwhile, if it is."""
        program = happening.program
        match KINDS[happening.disturbance.kind].then:
            case Then.KILL_EARLY:
                await self._instances.restart_early(program)
            case Then.TERMINATE:
                with real_time.move_on_after(GRACE_S):
                    await program.wait_ended()
                program.kill()
            case Then.JOIN:
                await self._instances.add()
            case Then.LOSE_LEADER:
                await self._lose_leader(happening)
            case Then.MOVE_LEADERS:
                await self._nodes.move_leaders(happening.node)
                self._broker.faults.release(happening.rule_id)
            case Then.EXPIRE_TRANSACTION:
                await self._bench.expire_transactions([one for one, _ in self._watch.open_transactions()])
                await self._let_go(happening)
            case Then.TAKE_OVER:
                await self._bench.expire_members(self._instances.members(program))
                self._watch.forget_positions(program.listener)
                await self._instances.add()
                stuck = await self._loop(lambda: self._has_nothing_to_do(ignore_open=True))
                await self._let_go(happening)
                self._watch.note_activity()
                self._deadline = real_time.monotonic() + self._plan.timeout_s
                return stuck
        return None

    async def _let_go(self, happening: Happening) -> None:
        """Let a program go on that stands still, with the response to the request that a rule holds: it would otherwise
        be chance whether it sees that first, or the end of its session.
        """
        self._broker.faults.release(happening.rule_id)
        with real_time.move_on_after(RESPONSE_S):
            while self._watch.is_pending(happening.request):
                await real_time.sleep(TURN_S)
        happening.program.resume()

    async def _lose_leader(self, happening: Happening) -> None:
        """Let the node of the step die, which is cut off, when it has written and answered."""
        with real_time.move_on_after(WRITE_S):
            while self._watch.writes == happening.writes:
                await real_time.sleep(TURN_S)
        await real_time.sleep(TURN_S)  # the response leaves, where no follower has to have the records
        self._nodes.kill(happening.node)
        self._nodes.heal()

    async def _end_what_is_left(self) -> None:
        """Let end what the dead have left, and nobody ends: all is quiet for long, and that may be to blame."""
        if members := self._instances.left_members():
            await self._bench.expire_members(members)
            self._watch.note_activity()
        # A process that has begun to read may wait for offsets that are pending, or for records that are locked, or
        # behind an open transaction.
        if self._instances.are_reading:
            if abandoned := self._instances.abandoned():
                await self._abandon(abandoned)
            if self._plan.until_exit and self._result.happened and self._watch.uses_share_groups:
                await self._end_locks()

    async def _abandon(self, transactional_ids: Sequence[str]) -> None:
        """Let transactions that nobody ends time out, and note for how long readers wait in real life."""
        timeouts = dict(self._watch.open_transactions())
        expired = await self._bench.expire_transactions(transactional_ids)
        self._result.late_ms = max([self._result.late_ms, *(timeouts.get(one, 0) for one in expired)])
        self._watch.note_activity()

    # -- the loop

    async def _loop(self, is_over: Callable[[], bool]) -> str | None:
        """Supervise program and broker until ``is_over``. Returns why the program is stuck, if it is."""
        may_end = self._plan.until_exit or self._result.disturbances
        exits_max = EXITS_MAX if may_end else UNDISTURBED_EXITS_MAX
        while True:
            if not self._bench.is_whole:
                self._result.broker_ends.append(self._watch.now_s)
                await self._start_broker()
            if self._happenings:
                self._handling += 1
                stuck = await self._handle(self._happenings.popleft())
                self._handling -= 1
                if stuck is not None:
                    return stuck
            for program in self._instances.to_restart():
                if len(self._result.own_ends) >= exits_max:
                    return f"the program ends again and again: {self._result.own_ends[-1]}"
                if not program.is_ending:
                    self._deadline = max(self._deadline, real_time.monotonic() + self._plan.timeout_s / 2)
                await self._instances.restart(program)
            await self._bench.look(self._watch.last_activity)
            if is_over() and await self._has_no_remains():
                return None
            if self._is_quiet_for_long():
                await self._end_what_is_left()
            now = real_time.monotonic()
            if now > self._deadline:
                return await self._why_stuck()
            quiet_in = self._watch.last_activity + self._plan.quiet_s - now
            await real_time.sleep(quiet_in if 0 < quiet_in < TURN_S else TURN_S)

    async def _why_stuck(self) -> str:
        return await why_stuck(
            self._plan,
            self._watch,
            self._instances,
            self._broker,
            self._variables,
            is_handling=self._handling > 0,
        )

    def _is_done(self) -> bool:
        """Whether the program has nothing more to do, and everything that was to happen has happened."""
        return not self._happenings and self._has_nothing_to_do()

    def _has_nothing_to_do(self, *, ignore_open: bool = False) -> bool:
        watch, plan = self._watch, self._plan
        if not self._bench.is_whole or self._instances.to_restart():
            return False
        if real_time.monotonic() - watch.last_activity < plan.quiet_s or self._instances.have_work:
            return False
        if plan.until_exit:
            return self._instances.are_finished
        if not watch.uses_share_groups and not watch.is_at_end(plan.inputs):
            return False
        return ignore_open or not self._instances.owned()

    def _is_quiet_for_long(self) -> bool:
        quiet_s = real_time.monotonic() - self._watch.last_activity
        return self._bench.is_whole and quiet_s > BLOCKED * self._plan.quiet_s

    async def _has_no_remains(self) -> bool:
        """Return whether no transaction is open and no share group has records to give out. What the dead have left is
        brought to its end by moved time; the program may then have more to do.
        """
        if self._instances.none_is_paused and (abandoned := self._instances.abandoned()):
            await self._abandon(abandoned)
            return False
        if self._watch.uses_share_groups:
            groups = await self._share_groups()
            if any(group.total_lag for group in groups):
                await self._end_locks()
                return False
            return not any(map(has_yet_to_begin, groups))
        return True

    async def _end_locks(self) -> None:
        """Let the locks of records in share groups end."""
        if self._lock_moves < LOCK_MOVES_MAX:
            self._lock_moves += 1
            await self._bench.end_locks()
            self._watch.note_activity()

    async def _share_groups(self) -> list[ShareGroupInfo]:
        return [
            await self._broker.call("share_group", {"group_id": group_id})
            for group_id in await self._bench.share_groups()
        ]

    # -- the end

    async def _collect_at_rest(self) -> None:
        """Note what has come out; again, if a broker dies meanwhile: the program may still send something."""
        while True:
            try:
                return await self._collect()
            except (NotRunningError, NotFoundError, KafkaError):
                if self._bench.is_whole:
                    raise
            self._result.stuck = await self._loop(self._is_done)

    async def _collect(self) -> None:
        """Note what has come out."""
        result = self._result
        await result.collect(self._plan, self._bench, self._watch, self._output_ends)
        if self._plan.check is not None:
            code, output = await self._shell(self._plan.check)
            if code and not result.disturbances and result.stuck is None:
                raise InvalidArgumentError(
                    f"--check ended with exit code {code} in an undisturbed run, which must be 0: {last_line(output)}"
                )
            failed = f"exit code {code}: {last_line(output)}" if code else None
            result.check_output, result.check_error = None if failed else output, failed
        result.journal, result.watch = self._broker.journal, self._watch
        result.finished = self._instances.finished

    async def _shell(self, command: str) -> tuple[int, str]:
        filled_command, environment = filled(
            self._plan,
            self._variables,
            ["/bin/sh", "-c", command],
            self._bench.address(listener_of(1)),
            self._place,
            1,
        )
        self._shells += 1
        output_path = f"{self._folder}/shell.{self._shells}.log"
        return await run_command(filled_command, environment=environment, output_path=output_path)


def has_yet_to_begin(group: ShareGroupInfo) -> bool:
    """Tell whether a share group has members, and does not know yet where it begins to read: its lag counts nothing of
    that.
    """
    rows = [one for partitions in group.partitions.values() for one in partitions.values()]
    return bool(group.members) and (not rows or any(one.start_offset is None for one in rows))
