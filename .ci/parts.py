"""Run the parts of a whole run, targets of the Makefile, and say how long each took.

    python .ci/parts.py tests compat_tests --beside lint docs-site

Two parts run at a time. One lane begins with the first part, the other with those `--beside`, one after the other; the
next part goes to the lane that is free first. A part that waits leaves the processor to the one beside it. One part is
shown as it comes; what another prints meanwhile is shown when that has ended. A part that fails does not end the
others; the exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections import deque


class Run:
    """What has run so far."""

    def __init__(self, parts: list[str], beside: list[str]) -> None:
        self.rows: list[tuple[str, float, bool]] = []
        self._parts = deque(parts)
        self._beside = deque(beside)
        self._terminal = threading.Lock()
        """Held by the part that is shown."""
        self._ended: deque[str] = deque()
        """The output of parts that have ended, and could not be shown yet."""
        self._begun = time.monotonic()

    def lane(self, *, begins_beside: bool) -> None:
        """Run parts until none is left."""
        while True:
            if begins_beside and self._beside:
                name, waits = self._beside.popleft(), True
            else:
                try:
                    name, waits = self._parts.popleft(), False
                except IndexError:
                    return
            self._part(name, waits_to_show=waits)

    def _part(self, name: str, *, waits_to_show: bool) -> None:
        """Run a target, to its end."""
        begun = time.monotonic()
        command = ["make", "--no-print-directory", name]
        kept: list[str] = []
        is_shown = False
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            while text := process.stdout.read(1) if is_shown else process.stdout.readline():
                kept.append(text)
                if not is_shown and not waits_to_show:
                    is_shown = self._terminal.acquire(blocking=False)
                if is_shown:
                    print("".join(kept), end="", flush=True)
                    kept.clear()
        failed = process.returncode != 0
        self.rows.append((name, time.monotonic() - begun, failed))
        self._ended.append(f"{''.join(kept).rstrip()}\n{name} {'failed' if failed else 'passed'}")
        if is_shown or self._terminal.acquire(blocking=False):
            self.show_ended()
            self._terminal.release()

    def show_ended(self) -> None:
        """Print the output of parts that have ended."""
        while self._ended:
            print(f"\n{self._ended.popleft()}", flush=True)

    def table(self) -> str:
        rows = [*self.rows, ("whole", time.monotonic() - self._begun, self.failed)]
        return "\n".join(
            f"{name:<14} {seconds // 60:3.0f}:{seconds % 60:02.0f}{'  failed' if failed else ''}"
            for name, seconds, failed in rows
        )

    @property
    def failed(self) -> bool:
        return any(failed for _, _, failed in self.rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--beside", nargs="*", default=[])
    given = parser.parse_args()
    run = Run(given.parts, given.beside)
    lanes = [threading.Thread(target=run.lane, kwargs={"begins_beside": True})] if given.beside else []
    for lane in lanes:
        lane.start()
    run.lane(begins_beside=False)
    for lane in lanes:
        lane.join()
    run.show_ended()
    print(f"\n{run.table()}", flush=True)
    return run.failed


if __name__ == "__main__":
    sys.exit(main())
