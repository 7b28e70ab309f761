"""``oncelog`` as a process of its own."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

DEADLINE_S = 300
"""Seconds after which a process that has not responded or ended is considered stuck."""

Serve = Callable[..., "Process"]


class Process:
    """An ``oncelog`` process. Its stderr goes to a file, so that nothing waits for it to be read."""

    def __init__(
        self,
        home: pathlib.Path,
        *arguments: str,
        stdout: int = subprocess.PIPE,
        stderr: int | None = None,
        command: Sequence[str] = (sys.executable, "-m", "oncelog"),
        cwd: pathlib.Path | None = None,
        **environment: str,
    ) -> None:
        self._errors = home / f"stderr-{len(list(home.iterdir()))}"
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("KAFKA_", "ONCELOG_"))
        }
        with self._errors.open("wb") as errors:
            self.popen = subprocess.Popen(
                [*command, *arguments],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=errors if stderr is None else stderr,
                env={**kept, "HOME": str(home), "TMPDIR": str(home), "XDG_DATA_HOME": "", **environment},
                text=True,
            )

    @property
    def stderr(self) -> str:
        return self._errors.read_text()

    def wait_ready(self) -> dict[str, str]:
        """The ready line's fields. A process that cannot start ends, so reading a line ends too."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line.startswith("oncelog ready "), f"{line!r}\n{self.stderr}"
        return dict(field.split("=", 1) for field in line.split()[2:])

    def end(self, number: int | None = None) -> int:
        """The exit code, after a signal if one is given."""
        if number is not None:
            self.popen.send_signal(number)
        return self.popen.wait(DEADLINE_S)

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        for pipe in (self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def serve(tmp_path: pathlib.Path) -> Iterator[Serve]:
    """Start ``oncelog serve``, or another ``subcommand``, with these arguments. Processes that still run at the end of
    the test are killed.
    """
    started: list[Process] = []

    def start(*arguments: str, subcommand: str = "serve", **more: Any) -> Process:
        started.append(Process(tmp_path, subcommand, *arguments, **more))
        return started[-1]

    yield start
    for process in started:
        process.close()


def address_of(ready: dict[str, str]) -> tuple[str, int]:
    host, _, port = ready["address"].rpartition(":")
    return host, int(port)
