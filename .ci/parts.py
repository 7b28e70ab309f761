"""Run the parts of a whole run, targets of the Makefile, and say how long each took.

    python .ci/parts.py tests compat_tests --beside lint docs-site

The parts run in their order, and show what they print as it comes. Those `--beside` run in their order, too, next to
them: a part that waits leaves the processor to them. What they print is shown when they have ended. A part that fails
does not end the others; the exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time


class Run:
    """What has run so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, bool]] = []
        self._begun = time.monotonic()

    def part(self, name: str, *, shown: bool) -> None:
        """Run a target, to its end."""
        begun = time.monotonic()
        command = ["make", "--no-print-directory", name]
        if shown:
            failed = subprocess.run(command, check=False).returncode != 0
        else:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            failed = done.returncode != 0
            print(f"\n{done.stdout.rstrip()}\n{name} {'failed' if failed else 'passed'}", flush=True)
        self.rows.append((name, time.monotonic() - begun, failed))

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
    run = Run()

    def beside() -> None:
        for name in given.beside:
            run.part(name, shown=False)

    thread = threading.Thread(target=beside)
    thread.start()
    for name in given.parts:
        run.part(name, shown=True)
    thread.join()
    print(f"\n{run.table()}", flush=True)
    return run.failed


if __name__ == "__main__":
    sys.exit(main())
