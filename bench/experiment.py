"""Rows, their targets, and what an experiment gets to measure them with."""

import contextlib
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

from bench.measure import cpu_s, own_cpu_s
from bench.servers import Kind, Server, format_kafka, make

REMOVALS, REMOVAL_PAUSE_S = 5, 1.0


@dataclasses.dataclass(frozen=True)
class Target:
    """What ours should reach: `of` is "ratio" (ours / Kafka) or "ours" (in the row's unit)."""

    of: str
    at_least: float | None = None
    at_most: float | None = None

    def text(self) -> str:
        bound = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        return f"{bound} x" if self.of == "ratio" else bound

    def met(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


def ratio_at_least(value: float) -> Target:
    return Target("ratio", at_least=value)


def ratio_at_most(value: float) -> Target:
    return Target("ratio", at_most=value)


def ours_at_least(value: float) -> Target:
    return Target("ours", at_least=value)


def ours_at_most(value: float) -> Target:
    return Target("ours", at_most=value)


@dataclasses.dataclass(frozen=True)
class Row:
    """`is_cost`: of CPU seconds, for which what the stub used is no bound."""

    name: str
    unit: str
    target: Target | None = None
    is_cost: bool = False


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Measures one or more rows of one server in one round.

    A `warm` one uses a server that stays up for all rounds and experiments of its sort (so that the JVM's compiler
    has done its work), and is run once before unmeasured; others start servers of their own. One with a `ceiling` is
    also run against a stub that does nothing, so that the table can say what the client would let any server reach.
    """

    name: str
    rows: tuple[Row, ...]
    run: Callable[["Lab", Kind], None]
    warm: bool = False
    ceiling: bool = False
    rounds_max: int = 99


class Lab:
    """Servers, directories and the samples so far. `scale` is 1, or less with --quick."""

    def __init__(self, root: pathlib.Path, scale: float) -> None:
        self.root = root
        self.scale = scale
        self.recording = True
        self.samples: dict[str, dict[Kind, list[float]]] = {}
        self.client_cores: dict[str, dict[Kind, list[float]]] = {}
        self.server_cores: dict[str, dict[Kind, list[float]]] = {}
        self.notes: list[str] = []
        self._warm: dict[Kind, Server] = {}
        self._made = 0

    @contextlib.contextmanager
    def unrecorded(self, scale: float = 1) -> Iterator[None]:
        """What runs in it warms a server up: its samples are dropped, its counts are `scale` of the usual."""
        before = self.recording, self.scale
        self.recording, self.scale = False, self.scale * scale
        try:
            yield
        finally:
            self.recording, self.scale = before

    def count(self, full: int) -> int:
        return max(1, int(full * self.scale))

    def record(self, row: str, kind: Kind, value: float, used: "Used | None" = None) -> None:
        if not self.recording:
            return
        self.samples.setdefault(row, {}).setdefault(kind, []).append(value)
        if used is not None:
            self.client_cores.setdefault(row, {}).setdefault(kind, []).append(used.client_cores)
            self.server_cores.setdefault(row, {}).setdefault(kind, []).append(used.server_cores)

    def note(self, text: str) -> None:
        if self.recording and text not in self.notes:
            self.notes.append(text)

    def name(self, stem: str) -> str:
        """A name that was not used before, for a topic or directory."""
        self._made += 1
        return f"{stem}{self._made}"

    def warm_server(self, kind: Kind) -> Server:
        if kind not in self._warm:
            # Known before it starts: one whose start fails half way is a process too, and has to be stopped.
            self._warm[kind] = make(kind, self.root / self.name(kind))
            self._warm[kind].start()
        return self._warm[kind]

    def stop_warm_servers(self) -> None:
        """Stop all of them. Raises what the first one that could not be stopped did."""
        with contextlib.ExitStack() as stack:
            while self._warm:
                stack.callback(self._warm.popitem()[1].stop)

    def fresh_server(self, kind: Kind, properties: Mapping[str, str] | None = None) -> "FreshServer":
        return FreshServer(kind, properties)


@contextlib.contextmanager
def temporary_directory() -> Iterator[pathlib.Path]:
    """A directory that goes with the context; one that cannot be removed is named, and is no error.

    A server that has not ended yet (a kill waits for the disk) may make a file in a directory that is just removed.
    What was measured must not be lost for that.
    """
    directory = tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)
    path = pathlib.Path(directory.name)
    try:
        yield path
    finally:
        for _ in range(REMOVALS):
            directory.cleanup()
            if not path.exists():
                break
            time.sleep(REMOVAL_PAUSE_S)
        else:
            print(f"could not be removed, does a server still write there? {path}", file=sys.stderr)


class Used:
    """What this process, the client, and a server used of the machine in a `with`: CPU seconds, and cores."""

    def __init__(self, server: Server) -> None:
        self._pid = server.pid
        self.seconds = self.client_s = self.server_s = 0.0

    def __enter__(self) -> Self:
        self._before = cpu_s(self._pid), own_cpu_s(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = time.perf_counter(), own_cpu_s(), cpu_s(self._pid)
        spent = (one - before for one, before in zip(now, reversed(self._before), strict=True))
        self.seconds, self.client_s, self.server_s = spent

    @property
    def client_cores(self) -> float:
        return self.client_s / self.seconds

    @property
    def server_cores(self) -> float:
        return self.server_s / self.seconds


class FreshServer:
    """A server that is not started, on a (formatted) directory that goes with the context."""

    def __init__(self, kind: Kind, properties: Mapping[str, str] | None) -> None:
        with contextlib.ExitStack() as stack:
            data_dir = stack.enter_context(temporary_directory()) / "data"
            self.format_s = format_kafka(data_dir) if kind is Kind.KAFKA else 0.0
            self.server = make(kind, data_dir, properties)
            stack.callback(self.server.stop)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
