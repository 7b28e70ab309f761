"""`Bystander`: how long does another connection wait, and how much of that did the server compute?"""

import pathlib
import statistics
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.common.frames import Connection

RESPONSE_TIMEOUT_S = 180
PAUSE_S = 0.002
SETTLE_S = 0.05


class Bystander(threading.Thread):
    """Sends ApiVersions to a server on one connection again and again.

    `longest` is the longest wait, and `busy` is the longest time for which the server's main thread, which runs
    oncelog's loop, was on a processor during a wait; both in seconds. Other processes lengthen only the first.
    """

    def __init__(self, bootstrap: str, pid: int) -> None:
        super().__init__(daemon=True)
        self._connection = Connection(bootstrap)
        self._connection.socket.settimeout(RESPONSE_TIMEOUT_S)
        self._scheduled = pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat")
        self.longest = self.busy = 0.0

    def reset(self) -> None:
        """Forget the waits so far."""
        self.longest = self.busy = 0.0

    def run(self) -> None:
        """See threading.Thread. It ends with the server."""
        while True:
            try:
                ran = self._on_processor_s()
                began = time.perf_counter()
                if self._connection.call("ApiVersions", 0) == "closed":
                    return
                self.longest = max(self.longest, time.perf_counter() - began)
                self.busy = max(self.busy, self._on_processor_s() - ran)
            except OSError:
                return
            time.sleep(PAUSE_S)

    def _on_processor_s(self) -> float:
        return int(self._scheduled.read_text().split()[0]) / 1e9


class Row(NamedTuple):
    """What an attack did: medians over its repetitions, in seconds, and the outcome of the last one."""

    waited: float
    busy: float
    took: float
    outcome: str


def measured(bystander: Bystander, send: Callable[[], str], repetitions: int) -> Row:
    """Send so many times, and return how long the bystander waited."""
    found: list[tuple[float, float, float]] = []
    outcome = ""
    for _ in range(repetitions):
        time.sleep(SETTLE_S)
        bystander.reset()
        began = time.perf_counter()
        outcome = send()
        took = time.perf_counter() - began
        time.sleep(SETTLE_S)
        found.append((bystander.longest, bystander.busy, took))
    waited, busy, took = map(statistics.median, zip(*found, strict=True))
    return Row(waited, busy, took, outcome)


class Memory:
    """The resident memory of a process, in bytes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def begin(self) -> None:
        """From now on the most is looked for."""
        pathlib.Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    def now(self) -> int:
        """Return what it holds now."""
        return self._field("VmRSS")

    def most(self) -> int:
        """Return the most that it held since `begin`."""
        return self._field("VmHWM")

    def _field(self, name: str) -> int:
        for line in pathlib.Path(f"/proc/{self._pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise OSError(f"process {self._pid} has no {name}")
