"""oncelog as users run it: `oncelog serve` in its own process, which prints one line when it is ready."""

import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Self

from tests.common import facts
from tests.common.local_broker import LocalBroker
from tests.common.process import Process

START_TIMEOUT_S = 120
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Oncelog(LocalBroker):
    """An oncelog broker on a free port of 127.0.0.1; a restart keeps data and port.

    `properties` become `-c key=value`; its `listeners` are added to PLAINTEXT.
    A given `data_dir` is kept; without one the data is deleted with the context. Beside an older Kafka it presents
    itself as of that release.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        data_dir: pathlib.Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, "oncelog-")
        self._properties = dict(properties or {})
        self._arguments = (*arguments, *(facts.AS_RELEASE if "--as-version" not in arguments else ()))
        self._port = 0
        self.ready_line = ""
        self._earlier_tracebacks = 0  # of processes that have ended

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def tracebacks(self) -> int:
        """The number of tracebacks that the broker has logged; each is a bug of oncelog."""
        return self._earlier_tracebacks + (self.process.stderr.tracebacks if self.process is not None else 0)

    @property
    def running(self) -> bool:
        """Whether it has not ended by itself; a broker that a test stopped counts as running."""
        return self.process is None or self.process.running

    def start(self) -> Self:
        """Start, and return at the ready line. Raises AssertionError with the broker's output."""
        command = [sys.executable, "-m", "oncelog.broker.command.cli", "serve", "--listen", self._listeners()]
        command += ["--data-dir", str(self.data_dir), *self._arguments]
        for key, value in self._properties.items():
            command += ["-c", f"{key}={value}"]
        env = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.process = Process(command, env, without=("KAFKA_", "ONCELOG_"))  # the tests' own variables, too
        self.ready_line = self.process.stdout.wait_for("127.0.0.1:", START_TIMEOUT_S) or ""
        found = re.search(r"127\.0\.0\.1:(\d+)", self.ready_line)
        if found is None:
            code = self.process.end(kill=True)
            output, self.process = self.process.output(), None
            raise AssertionError(f"oncelog did not start (exit {code}):\n{output}")
        self._port = int(found[1])
        return self

    def _listeners(self) -> str:
        more = self._properties.get("listeners")
        first = f"127.0.0.1:{self._port}"
        return first if more is None else f"PLAINTEXT://{first},{more}"

    def _end(self, *, kill: bool) -> int | None:
        process = self.process
        code = super()._end(kill=kill)
        if process is not None:
            self._earlier_tracebacks += process.stderr.tracebacks
        return code
