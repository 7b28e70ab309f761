"""Experiments, the rows that they measure, the rows' targets, and the harness that they run in."""

import contextlib
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

from bench.listeners import PLAINTEXT, TlsListeners
from bench.measure import cpu_s, own_cpu_s
from bench.servers import COMPARED, PATHS, Kind, Server, format_kafka, make, through

REMOVALS, REMOVAL_PAUSE_S = 5, 1.0


@dataclasses.dataclass(frozen=True)
class Target:
    """A bound for a row: `of` is "ratio" (oncelog / Kafka) or "ours" (oncelog's value in the row's unit).

    With `beside` the bound `at_least` is added to the ratio of the row of that name.
    """

    of: str
    at_least: float | None = None
    at_most: float | None = None
    beside: str | None = None

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


def ratio_beside(row: str, more: float) -> Target:
    return Target("ratio", at_least=more, beside=row)


def ours_at_least(value: float) -> Target:
    return Target("ours", at_least=value)


def ours_at_most(value: float) -> Target:
    return Target("ours", at_most=value)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table. `is_cost`: its values are CPU seconds, for which the stub's value is no bound."""

    name: str
    unit: str
    target: Target | None = None
    is_cost: bool = False


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Measures one or more rows; `run` measures one server in one round.

    A `warm` experiment uses servers that stay up for all rounds of all warm experiments, so that the JVM's compiler has
    finished; a first round is not recorded. Other experiments start their own servers. An experiment with a `ceiling`
    also runs with a stub that does nothing, which shows how far any server could get with this client. `kinds` are
    what it compares.
    """

    name: str
    rows: tuple[Row, ...]
    run: Callable[["Harness", Kind], None]
    warm: bool = False
    ceiling: bool = False
    rounds_max: int = 99
    kinds: tuple[Kind, ...] = COMPARED


class Harness:
    """Starts servers and keeps samples for experiments. `scale` is 1, or less with --quick."""

    def __init__(self, root: pathlib.Path, scale: float) -> None:
        self.root = root
        self.scale = scale
        self.recording = True
        self.samples: dict[str, dict[Kind, list[float]]] = {}
        self.client_cores: dict[str, dict[Kind, list[float]]] = {}
        self.server_cores: dict[str, dict[Kind, list[float]]] = {}
        self.notes: list[str] = []
        self._warm: dict[Kind, Server] = {}
        self._tls: dict[Kind, TlsListeners] = {}
        self._names = 0

    @contextlib.contextmanager
    def unrecorded(self, scale: float = 1) -> Iterator[None]:
        """A context for a warm-up: samples are dropped, and counts are multiplied by `scale`."""
        before = self.recording, self.scale
        self.recording, self.scale = False, self.scale * scale
        try:
            yield
        finally:
            self.recording, self.scale = before

    def count(self, full: int) -> int:
        """`full` times the scale, at least 1."""
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
        """A new name for a topic or directory."""
        self._names += 1
        return f"{stem}{self._names}"

    def warm_server(self, kind: Kind) -> Server:
        if kind not in self._warm and kind in PATHS and kind is not Kind.DIRECT:
            self._warm[kind] = through(kind, self.warm_server(Kind.DIRECT))
            self._warm[kind].start()
        if kind not in self._warm:
            # Kept before it starts, so that a server whose start fails half way is stopped, too.
            self._tls[kind] = TlsListeners(self.root / self.name("certificates"))
            self._warm[kind] = make(kind, self.root / self.name(kind), self._tls[kind].properties())
            self._warm[kind].start()
        return self._warm[kind]

    def tls_listeners(self, kind: Kind) -> TlsListeners:
        """Those of the warm server, which must have been started."""
        return self._tls[kind]

    def client(self, kind: Kind, listener: str) -> dict[str, str]:
        """librdkafka's settings for a listener of the warm server."""
        self.warm_server(kind)
        return {} if listener == PLAINTEXT else self._tls[kind].client(listener)

    def stop_warm_servers(self) -> None:
        """Stop all of them; raises the first error only after all were stopped."""
        with contextlib.ExitStack() as stack:
            while self._warm:
                stack.callback(self._warm.popitem()[1].stop)

    def fresh_server(self, kind: Kind, properties: Mapping[str, str] | None = None) -> "FreshServer":
        return FreshServer(kind, properties)


@contextlib.contextmanager
def temporary_directory() -> Iterator[pathlib.Path]:
    """A directory that is deleted with the context; if that fails, a message names it.

    A server that has not exited yet (a kill waits for the disk) may create a file in a directory during its removal.
    That must not discard the results.
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
            print(f"{path} could not be removed: does a server still write to it?", file=sys.stderr)


class Used:
    """The CPU seconds, and cores, that this process (the client) and a server used in a `with`."""

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
        spent = (after - before for after, before in zip(now, reversed(self._before), strict=True))
        self.seconds, self.client_s, self.server_s = spent

    @property
    def client_cores(self) -> float:
        return self.client_s / self.seconds

    @property
    def server_cores(self) -> float:
        return self.server_s / self.seconds


class FreshServer:
    """A server that is not started yet, on a formatted directory that is deleted with the context."""

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
