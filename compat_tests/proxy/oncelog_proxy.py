"""`oncelog proxy` as users run it: in its own process, before a broker or a cluster."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from compat_tests.oncelog_server import ROOT, START_TIMEOUT_S
from compat_tests.proxy.ports import adjacent_ports
from tests.common.process import Process

START_ATTEMPTS = 3
NODES_MAX = 3


class OncelogProxy:
    """A proxy before `upstream` (addresses), on a free port of 127.0.0.1; the ports after it are the nodes'.

    A context manager; a restart keeps the ports. `arguments` are further ones of the command.
    """

    def __init__(self, upstream: str, arguments: Sequence[str] = ()) -> None:
        self.process: Process | None = None
        self.bootstrap = ""
        self._upstream = upstream
        self._arguments = tuple(arguments)
        self._earlier_tracebacks = 0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def tracebacks(self) -> int:
        """The number of tracebacks that it has logged; each is a bug of oncelog."""
        return self._earlier_tracebacks + (self.process.stderr.tracebacks if self.process else 0)

    @property
    def running(self) -> bool:
        """Whether it has not ended by itself; a proxy that a test stopped counts as running."""
        return self.process is None or self.process.running

    def start(self) -> Self:
        """Start, and return at the ready line. Raises AssertionError with its output."""
        for attempt in range(1, START_ATTEMPTS + 1):
            listen = self.bootstrap or f"127.0.0.1:{adjacent_ports(NODES_MAX + 1)}"
            command = [
                sys.executable,
                "-m",
                "oncelog.broker.command.cli",
                "proxy",
                "--upstream",
                self._upstream,
            ]
            command += ["--listen", listen, *self._arguments]
            env = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
            self.process = Process(
                command, env, without=("KAFKA_", "ONCELOG_")
            )  # the tests' own variables, too
            if self.process.stdout.wait_for(listen, START_TIMEOUT_S) is not None:
                self.bootstrap = listen
                return self
            code = self.process.end(kill=True)
            output, self.process = self.process.output(), None
            if self.bootstrap or attempt == START_ATTEMPTS or "in use" not in output:
                raise AssertionError(f"oncelog proxy did not start (exit {code}):\n{output}")
        raise AssertionError

    def stop(self) -> int | None:
        """Stop cleanly (SIGTERM). Returns the exit code, or None if it did not run."""
        return self._end(kill=False)

    def kill(self) -> None:
        """Send SIGKILL to its process."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> int | None:
        if self.process is None:
            return None
        code = self.process.end(kill=kill)
        self._earlier_tracebacks += self.process.stderr.tracebacks
        self.process = None
        return code

    def output(self) -> str:
        """The last lines that the running proxy wrote."""
        return self.process.output() if self.process is not None else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
