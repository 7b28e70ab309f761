"""A process that sends ApiVersions on one connection again and again, and reports the longest wait.

It is a separate process, so that the load of the measuring process does not count. It prints a line when it has
warmed up, and the longest wait in milliseconds when its standard input ends.
"""

import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from tests.common.definitions import api_key
from tests.common.frames import Connection

PACE_S = 0.001
VERSION = 0
WARM_UP = 200


class Ping:
    """A context manager that runs the process; ``longest_ms`` is set at its end."""

    def __init__(self, bootstrap: str) -> None:
        self._command = [sys.executable, "-m", "bench.ping", bootstrap]
        self.longest_ms = 0.0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        output, _ = self._process.communicate()
        if kind is None:
            self.longest_ms = float(output)


def main(bootstrap: str) -> None:
    longest = 0.0
    with Connection(bootstrap) as connection:

        def ping() -> float:
            """Seconds of one round trip."""
            began = time.perf_counter()
            connection.send_frame(connection.header(api_key("ApiVersions"), VERSION, flexible=False))
            if connection.receive_frame() is None:
                raise RuntimeError("the server closed the connection")
            return time.perf_counter() - began

        for _ in range(WARM_UP):
            ping()
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], PACE_S)[0]:
            longest = max(longest, ping())
    print(longest * 1000)


if __name__ == "__main__":
    main(sys.argv[1])
