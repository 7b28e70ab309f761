"""oncelog as its users run it: `oncelog serve` in a process of its own, known by its one ready line."""

import pathlib
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from compat_tests.process import Process

START_TIMEOUT_S = 30
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Oncelog:
    """One broker on a free port of 127.0.0.1; a restart keeps data and port.

    `properties` go to `-c key=value`. With `data_dir` its logs stay there; else they go with the context.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        data_dir: pathlib.Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._own_dir = None if data_dir else tempfile.TemporaryDirectory(prefix="oncelog-")
        self.data_dir = data_dir or pathlib.Path(self._own_dir.name) / "data"  # type: ignore[union-attr]
        self._properties = dict(properties or {})
        self._arguments = tuple(arguments)
        self._port = 0
        self.ready_line = ""
        self.process: Process | None = None
        self._tracebacks_before = 0  # of processes that ended

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def tracebacks(self) -> int:
        """How many tracebacks the broker logged so far: each is a bug of ours."""
        return self._tracebacks_before + (self.process.stderr.tracebacks if self.process is not None else 0)

    def start(self) -> Self:
        """Start and return at the ready line. Raises AssertionError with the broker's output."""
        command = [sys.executable, "-m", "broker.cli", "serve", "--listen", f"127.0.0.1:{self._port}"]
        command += ["--data-dir", str(self.data_dir), *self._arguments]
        for key, value in self._properties.items():
            command += ["-c", f"{key}={value}"]
        self.process = Process(command, env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"})
        self.ready_line = self.process.stdout.wait_for("127.0.0.1:", START_TIMEOUT_S) or ""
        found = re.search(r"127\.0\.0\.1:(\d+)", self.ready_line)
        if found is None:
            code = self.process.end(kill=True)
            output, self.process = self.process.output(), None
            raise AssertionError(f"oncelog did not start (exit {code}):\n{output}")
        self._port = int(found[1])
        return self

    def stop(self) -> int | None:
        """A clean stop (SIGTERM); the exit code, None when it did not run."""
        return self._end(kill=False)

    def kill(self) -> None:
        """SIGKILL, to this broker's own process."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> int | None:
        if self.process is None:
            return None
        code = self.process.end(kill=kill)
        self._tracebacks_before += self.process.stderr.tracebacks
        self.process = None
        return code

    def restart(self) -> None:
        """Stop cleanly if it runs, and start again on the same data and port."""
        self.stop()
        self.start()

    def output(self) -> str:
        """The last lines the running broker wrote."""
        return self.process.output() if self.process is not None else ""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._forget_data()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._forget_data()

    def _forget_data(self) -> None:
        if self._own_dir is not None:
            self._own_dir.cleanup()
