"""`Program`: an instance of the program under proof, with a listener of its own, started again after each end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.broker.prove.disturbances import LISTENER_PREFIX
from oncelog.broker.prove.plan import FOLDER_VARIABLE, INSTANCE_VARIABLE, PLACES, TRIAL_VARIABLE
from oncelog.broker.seams.processes import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oncelog.broker.prove.plan import ProofPlan


LINE_SHOWN: Final = 300
"""Characters of a line of the program's output that are shown."""
LINES_KEPT: Final = 20
"""The last lines of a process that a finding has."""
_FRAME: Final = re.compile(r"\s*(at \S+\(|\.\.\. \d+ more)")
"""A line of Java's stack trace: it says less than the exception above it."""


_TERMINAL_SEQUENCE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Place(NamedTuple):
    """What a trial has for itself."""

    folder: str
    """Of the program's files, kept over its restarts."""
    trial: str
    """A name, which may be that of a database or of a schema."""


class ProcessEnd(NamedTuple):
    """The end of a process of the program."""

    instance: int
    run: int
    """Which process of the instance it was, from 1 on."""
    exit_code: int
    """Minus the number of a signal, if one ended it."""
    at_s: float
    """Seconds of real time since the trial began."""
    was_wanted: bool
    """Whether the trial ended it."""
    output: str

    def __str__(self) -> str:
        how = f"signal {-self.exit_code}" if self.exit_code < 0 else f"exit code {self.exit_code}"
        return f"instance {self.instance} ended with {how}: {last_line(self.output) or 'no output'}"


class Program:
    """Instance ``instance`` of the plan's program, in a trial's ``place``. ``variables`` are in its environment."""

    def __init__(self, plan: ProofPlan, instance: int, place: Place, variables: Mapping[str, str]) -> None:
        self._plan = plan
        self._place = place
        self._variables = variables
        self.instance = instance
        self.listener = listener_of(instance)
        self.run = 0
        self.group: ProcessGroup | None = None
        """The process that runs, or ran last; None before the first start."""
        self.is_ending = False
        """Whether the trial has asked it to end."""
        self.is_paused = False
        self._is_starting = False
        self._signals: list[Callable[[ProcessGroup], None]] = []
        """What a process gets that has not been returned yet: its first request may come, and a disturbance with it,
        while `start` still waits for the thread that starts it.
        """

    async def start(self, bootstrap_servers: str) -> None:
        """Start it. Raises CommandError."""
        self.run += 1
        self.is_ending = self.is_paused = False
        command, environment = filled(
            self._plan, self._variables, self._plan.command, bootstrap_servers, self._place, self.instance
        )
        output = f"{self._place.folder}.{self.instance}.{self.run}.log"
        self._is_starting = True
        try:
            self.group = await ProcessGroup.start(command, environment=environment, output_path=output)
        finally:
            self._is_starting = False
            signals, self._signals = self._signals, []
        for signal in signals:
            signal(self.group)

    def _signal(self, signal: Callable[[ProcessGroup], None]) -> None:
        if self._is_starting:
            self._signals.append(signal)
        elif self.group is not None:
            signal(self.group)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process; None while it runs."""
        return None if self.group is None else self.group.exit_code

    def end(self, at_s: float) -> ProcessEnd:
        """Return the end of the process, which has ended. What it has started in its group is killed."""
        assert self.group is not None
        code = self.group.exit_code
        assert code is not None
        self.group.kill()
        return ProcessEnd(self.instance, self.run, code, at_s, self.is_ending, self.group.output())

    @property
    def output(self) -> str:
        """The end of its output so far."""
        return "" if self.group is None else self.group.output()

    def kill(self) -> None:
        """End it (SIGKILL)."""
        self.is_ending = True
        self._signal(ProcessGroup.kill)

    async def wait_ended(self) -> None:
        """Wait until its process has ended."""
        if self.group is not None:
            await self.group.wait()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self.is_ending = True
        self._signal(ProcessGroup.terminate)

    def pause(self) -> None:
        """Let it stand still."""
        self.is_paused = True
        self._signal(ProcessGroup.pause)

    def resume(self) -> None:
        """Let it go on."""
        self.is_paused = False
        self._signal(ProcessGroup.resume)


def last_lines(output: str) -> list[str]:
    """Return the last lines that show something: without what colours them or moves the cursor."""
    shown = _TERMINAL_SEQUENCE.sub("", output).expandtabs(4)
    lines = ("".join(filter(str.isprintable, one)) for one in shown.splitlines())
    return [one[:LINE_SHOWN].rstrip() for one in lines if one.strip()][-LINES_KEPT:]


def last_line(output: str) -> str:
    """Return the last of `last_lines` that says something by itself; empty if there is none."""
    return next((one.strip() for one in reversed(last_lines(output)) if not _FRAME.match(one)), "")


def listener_of(instance: int) -> str:
    """Return the name of an instance's listener."""
    return f"{LISTENER_PREFIX}{instance}"


def listener_config(count: int, protocol: str) -> dict[str, str]:
    """Return the configuration of a listener for each of so many instances."""
    names = [listener_of(number) for number in range(1, count + 1)]
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name in names),
    }


def filled(
    plan: ProofPlan,
    variables: Mapping[str, str],
    command: Sequence[str],
    bootstrap_servers: str,
    place: Place,
    instance: int,
) -> tuple[list[str], dict[str, str]]:
    """Return a command with the values of `PLACES` where it names them, and its environment, which has them, too,
    beside ``variables``.
    """
    values = bootstrap_servers, *place, str(instance)
    found = []
    for part in command:
        for word, value in zip(PLACES, values, strict=True):
            part = part.replace(word, value)
        found.append(part)
    return found, {
        plan.address_variable: bootstrap_servers,
        FOLDER_VARIABLE: place.folder,
        TRIAL_VARIABLE: place.trial,
        INSTANCE_VARIABLE: str(instance),
        **variables,
    }
