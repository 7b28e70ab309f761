"""`ProcessGroup`: a command that runs in a process group of its own, with everything that it starts there."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUTPUT_KEPT: Final = 64 * 1024
"""Bytes at the end of a command's output that `ProcessGroup.output` reads."""


class CommandError(Exception):
    """The command cannot be started. The text says why."""


def find_command(name: str) -> str:
    """Return the path of a program as the shell finds it. Raises CommandError."""
    found = shutil.which(name)
    if found is None:
        what = "is not executable" if os.path.isfile(name) else "does not exist"
        raise CommandError(f"the command {name!r} {what}")
    return found


class ProcessGroup:
    """Made by `start`."""

    def __init__(self, process: trio.Process, output_path: str) -> None:
        self._process = process
        self._output_path = output_path

    @classmethod
    async def start(
        cls, command: Sequence[str], *, environment: Mapping[str, str], output_path: str
    ) -> ProcessGroup:
        """Start ``command``, with ``environment`` beside this process's. Its output, of both kinds, is appended to the
        file ``output_path``; it has no input. Raises CommandError.
        """
        with open(output_path, "ab") as output:
            try:
                process = await trio.lowlevel.open_process(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise CommandError(
                    f"the command {command[0]!r} cannot be started: {error.strerror}"
                ) from error
        return cls(process, output_path)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command; minus the number of the signal that ended it; None while it runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Wait for the end of the command; return its exit code."""
        return await self._process.wait()

    def kill(self) -> None:
        """End the whole group (SIGKILL)."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the group to end (SIGTERM)."""
        self._send(signal.SIGTERM)

    def pause(self) -> None:
        """Let the group stand still (SIGSTOP)."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the group go on (SIGCONT)."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        # The group is there as long as one of its processes is, also after the command's own end.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def output(self) -> str:
        """Return the end of its output."""
        with suppress(OSError), open(self._output_path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - OUTPUT_KEPT))
            return file.read().decode("utf-8", "replace")
        return ""


async def run_command(
    command: Sequence[str], *, environment: Mapping[str, str], output_path: str
) -> tuple[int, str]:
    """Run a command to its end; return its exit code and the end of its output. Raises CommandError. A cancellation
    kills it.
    """
    group = await ProcessGroup.start(command, environment=environment, output_path=output_path)
    try:
        code = await group.wait()
    finally:
        group.kill()
    return code, group.output()


def kill_processes_with(variable: str, value: str) -> list[str]:
    """Kill the processes of this user whose environment has ``variable`` with a value that begins with ``value``;
    return the command and the id of each. It finds them where there is a ``/proc``, as on Linux.
    """
    wanted = f"{variable}={value}".encode()
    found = []
    for folder in glob.iglob("/proc/[0-9]*"):
        with suppress(OSError):
            with open(f"{folder}/environ", "rb") as file:
                if not any(one.startswith(wanted) for one in file.read().split(b"\0")) or _is_killed(folder):
                    continue
            with open(f"{folder}/cmdline", "rb") as file:
                command = file.read().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "backslashreplace")
            os.kill(int(os.path.basename(folder)), signal.SIGKILL)
            found.append(f"{command}, process {os.path.basename(folder)}")
    return found


def _is_killed(folder: str) -> bool:
    """Whether a process with that folder in ``/proc`` has got SIGKILL already."""
    with open(f"{folder}/status", "rb") as file:
        pending = [int(line.split()[1], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return any(one & 1 << signal.SIGKILL - 1 for one in pending)


def has_variable(name: str) -> bool:
    """Return whether the environment of this process has a variable."""
    return name in os.environ


def computed_s() -> float:
    """Return for how many seconds this process and its children that have ended have computed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def cores() -> int:
    """Return the number of processors."""
    return os.cpu_count() or 1


def new_folder() -> str:
    """Make a folder for temporary files; return its path."""
    return tempfile.mkdtemp(prefix="oncelog-prove-")


def make_folder(path: str) -> None:
    """Make a folder, and those above it."""
    os.makedirs(path, exist_ok=True)


def read_file(path: str) -> str:
    """Return a file of text. Raises OSError, and UnicodeDecodeError if it is not UTF-8."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def read_bytes(path: str) -> bytes:
    """Return a file's content: one that the user names, and may be a pipe of a shell. Raises OSError."""
    with open(path, "rb") as file:
        return file.read()


def write_file(path: str, content: bytes) -> None:
    """Write a file."""
    with open(path, "wb") as file:
        file.write(content)


def remove_folder(path: str) -> None:
    """Remove a folder with all that is in it."""
    shutil.rmtree(path, ignore_errors=True)


def folder_state(path: str) -> int:
    """Return a number that changes when a file below the folder ``path`` does: it is made of names, sizes and times.
    0: there is none.
    """
    found = []
    with suppress(OSError):
        for folder, _, names in os.walk(path):
            for name in names:
                with suppress(OSError):
                    status = os.stat(os.path.join(folder, name))
                    found.append((folder, name, status.st_size, status.st_mtime_ns))
    return hash(tuple(sorted(found))) if found else 0
