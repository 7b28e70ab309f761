"""`Instances`: the program in a trial: its instances, which are started again after each end, as a supervisor would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from oncelog.broker.prove.trials.program import Program, last_lines
from oncelog.broker.prove.trials.trial_result import LastWords
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncelog.broker.prove.disturbances import Disturbance
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.bench import Bench, GroupMember
    from oncelog.broker.prove.trials.program import Place
    from oncelog.broker.prove.trials.trial_result import TrialResult
    from oncelog.broker.prove.trials.watch import Watch

EARLY_S: Final = 3.0
"""How long a program may take to join its group again, while its old member is still there."""
LATEST: Final = 50
"""How many of the latest requests are searched for the JoinGroup or Fetch of a new process."""
TURN_S: Final = 0.02
"""How often a trial looks at the program and the broker."""


class Instances:
    """The instances of the program of ``plan``, in a trial's ``place``. ``variables`` are in their environment;
    ``result`` gets their ends.
    """

    def __init__(
        self,
        plan: ProofPlan,
        bench: Bench,
        watch: Watch,
        result: TrialResult,
        place: Place,
        variables: Mapping[str, str],
    ) -> None:
        self._plan = plan
        self._bench = bench
        self._watch = watch
        self._result = result
        self._place = place
        self._variables = variables
        self._programs = [self._program(number) for number in range(1, plan.instances + 1)]

    def _program(self, instance: int) -> Program:
        return Program(self._plan, instance, self._place, self._variables)

    def __iter__(self) -> Iterator[Program]:
        return iter(self._programs)

    def of(self, disturbance: Disturbance) -> Program:
        """Return the instance that a disturbance is about."""
        return self._programs[min(disturbance.instance, len(self._programs)) - 1]

    # -- their processes

    async def start(self) -> None:
        """Start all of them. Raises CommandError."""
        for program in self._programs:
            await self._start(program)

    async def add(self) -> None:
        """Start one more. Raises CommandError."""
        self._programs.append(self._program(len(self._programs) + 1))
        await self._start(self._programs[-1])

    async def restart(self, program: Program) -> None:
        """Start one again that has ended, when the sessions of the members are over that it was."""
        await self._bench.expire_members([*self._note_end(program), *self.left_members()])
        await self._start(program)

    async def restart_early(self, program: Program) -> None:
        """Start one again that was killed, and let the session of its old member end after the new one has come."""
        await program.wait_ended()
        old = self._note_end(program)
        await self._start(program)
        with real_time.move_on_after(EARLY_S):
            while not self._has_come(program):
                await real_time.sleep(TURN_S)
        await self._bench.expire_members(old)

    def kill(self) -> None:
        """Kill all of them."""
        for program in self._programs:
            program.kill()

    async def wait_ended(self) -> None:
        """Wait until all are dead, after `kill`; a cancellation does not end the wait."""
        with trio.CancelScope(shield=True):
            for program in self._programs:
                await program.wait_ended()

    async def _start(self, program: Program) -> None:
        self._watch.begin_run(program.listener)
        await program.start(self._bench.address(program.listener))

    def _note_end(self, program: Program) -> list[GroupMember]:
        """A process has ended. Returns its members of groups."""
        self._result.ends.append(program.end(self._watch.now_s))
        self._note_output(program)
        return self.members(program)

    def note_outputs(self) -> None:
        """Note what the latest process of each wrote."""
        for program in self._programs:
            self._note_output(program)

    def _note_output(self, program: Program) -> None:
        output = program.output
        if lines := last_lines(output):
            self._result.last_words.append(LastWords(program.instance, program.run, lines, output))

    def _has_come(self, program: Program) -> bool:
        """Whether the process that runs has asked to join its group, or for records."""
        return any(
            one.run == program.run and one.listener == program.listener and one.api in ("JoinGroup", "Fetch")
            for one in self._watch.sightings[-LATEST:]
        )

    # -- the state of each

    def members(self, program: Program) -> list[GroupMember]:
        """Return the members of groups that the latest process of an instance is."""
        process = program.listener, program.run
        return [one for one, owner in self._watch.members.items() if owner == process]

    def left_members(self) -> list[GroupMember]:
        """Return the members of groups that no process is that lives: its process has ended, or nobody knows of it."""
        alive = {(one.listener, one.run) for one in self._programs if one.exit_code is None}
        return [one for one in self._watch.group_members() if self._watch.members.get(one) not in alive]

    def has_finished(self, program: Program) -> bool:
        """Whether a batch job has ended by itself, well."""
        return self._plan.until_exit and program.exit_code == 0 and not program.is_ending

    @property
    def finished(self) -> set[tuple[int, int]]:
        """The processes of batch jobs that have ended by themselves, well: instance and run."""
        return {(one.instance, one.run) for one in self._programs if self.has_finished(one)}

    def to_restart(self) -> list[Program]:
        """Return those that have ended, and have not finished."""
        return [one for one in self._programs if one.exit_code is not None and not self.has_finished(one)]

    @property
    def are_finished(self) -> bool:
        """Whether all have finished but those that stand still."""
        return all(self.has_finished(one) for one in self._programs if not one.is_paused)

    @property
    def none_is_paused(self) -> bool:
        """Whether none stands still."""
        return not any(one.is_paused for one in self._programs)

    @property
    def have_work(self) -> bool:
        """Whether an instance that does not stand still has a request under way that may change something."""
        return self._watch.has_work([one.listener for one in self._programs if not one.is_paused])

    @property
    def are_reading(self) -> bool:
        """Whether each process that does not stand still has asked for offsets or records."""
        moving = {(one.listener, one.run) for one in self._programs if not one.is_paused}
        return moving <= self._watch.readers

    # -- their transactions

    def owned(self) -> list[str]:
        """Return the transactional ids whose open transaction belongs to a process that lives."""
        return [one for one, _ in self._watch.open_transactions() if self._owner(one) is not None]

    def abandoned(self) -> list[str]:
        """Return the transactional ids whose open transaction belongs to no process that lives and moves."""
        owners = {one: self._owner(one) for one, _ in self._watch.open_transactions()}
        return [one for one, owner in owners.items() if owner is None or owner.is_paused]

    def _owner(self, transactional_id: str) -> Program | None:
        """Return the instance whose latest process used a transactional id last, and has not finished."""
        owner = self._watch.owners.get(transactional_id)
        for program in self._programs:
            if (program.listener, program.run) == owner and not self.has_finished(program):
                return program
        return None
