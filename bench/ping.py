"""A process that asks one connection for nothing much, over and over: how long does anybody wait at worst?

It is a process of its own, so that what the measuring one does is no part of what it sees. It writes a line when it has
begun, and the longest wait in milliseconds when its standard input ends.
"""

import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from compat_tests.definitions import api_key
from compat_tests.frames import Connection

PACE_S = 0.001
VERSION = 0
WARM_UP = 200


class Ping:
    """``with Ping(bootstrap) as ping``; then ``ping.longest_ms`` is there."""

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
        said, _ = self._process.communicate()
        if kind is None:
            self.longest_ms = float(said)


def main(bootstrap: str) -> None:
    longest = 0.0
    with Connection(bootstrap) as connection:

        def ask() -> float:
            began = time.perf_counter()
            connection.send_frame(connection.header(api_key("ApiVersions"), VERSION, flexible=False))
            if connection.receive_frame() is None:
                raise RuntimeError("the server closed the connection")
            return time.perf_counter() - began

        for _ in range(WARM_UP):
            ask()
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], PACE_S)[0]:
            longest = max(longest, ask())
    print(longest * 1000)


if __name__ == "__main__":
    main(sys.argv[1])
