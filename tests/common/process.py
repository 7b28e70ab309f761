"""A child process whose output is read by threads, kept, and can be waited for; and ports for it."""

import contextlib
import os
import random
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

from tests.common.threads import join

PORTS = range(12_000, 32_000)
"""Linux gives none of them to who asks for any port, or connects."""
WORKERS_MAX = 16

_given: set[int] = set()
STOP_TIMEOUT_S = 30
OUTPUT_LINES_KEPT = 400


class Lines:
    """The last lines of a process's output stream, read by a thread so that the pipe never fills."""

    def __init__(self, stream: IO[str]) -> None:
        self.tracebacks = 0
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=OUTPUT_LINES_KEPT)
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self.tracebacks += "Traceback (most recent call last)" in line
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, text: str, timeout_s: float) -> str | None:
        """Wait for a line that contains `text`, and return it; None after the timeout or the end of the output."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._find(text) is not None, timeout_s)
            return self._find(text)

    def _find(self, text: str) -> str | None:
        return next((line for line in self._lines if text in line), None)

    def text(self) -> str:
        with self._changed:
            return "\n".join(self._lines)

    def close(self) -> None:
        join(self._reader)
        self._stream.close()


class Process:
    """A child process with `stdout` and `stderr` as `Lines`."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, without: tuple[str, ...] = ()
    ) -> None:
        """Start `command` with `env` over this process's environment, less variables that begin with `without`."""
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={name: text for name, text in os.environ.items() if not name.startswith(without)}
            | dict(env or {}),
        )
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.pid = self._popen.pid
        self.stdout = Lines(self._popen.stdout)
        self.stderr = Lines(self._popen.stderr)

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def output(self) -> str:
        """The last lines of both outputs."""
        return f"{self.stdout.text()}\n{self.stderr.text()}".strip("\n")

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process exits by itself; its exit code. Raises subprocess.TimeoutExpired."""
        code = self._popen.wait(timeout_s)
        self.stdout.close()
        self.stderr.close()
        return code

    def end(self, *, kill: bool) -> int:
        """Send SIGTERM, or SIGKILL with `kill` or after a timeout; the exit code."""
        if kill:
            self._popen.kill()
        else:
            self._popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.wait()
            self._popen.kill()
        return self.wait()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nobody listens. They stay free: each worker of pytest has ports of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = PORTS[worker % WORKERS_MAX :: WORKERS_MAX]
    found: list[int] = []
    while len(found) < count:
        port = random.choice(own)
        with contextlib.suppress(OSError), socket.socket() as one:
            if port not in _given:
                one.bind(("127.0.0.1", port))
                found.append(port)
                _given.add(port)
    return found
