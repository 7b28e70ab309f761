"""`Deletions`: files that are no longer part of a log, removed from the disk some time later.

Until then readers can finish (``file.delete.delay.ms``). The next start finds by their names the files that
still wait when the process ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.broker.seams.clock import Clock
from oncelog.broker.seams.files import FileSystem

_log = get_logger(__name__)


class Deletions:
    """Paths of files and directories, each with the time when it is removed."""

    def __init__(self, files: FileSystem, clock: Clock, background: BackgroundWork) -> None:
        self._files = files
        self._background = background
        self._clock = clock
        self._waiting: list[tuple[float, int, str, Callable[[], None] | None]] = []
        self._added = 0
        self._more = trio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: str, delay_ms: int, before: Callable[[], None] | None = None) -> None:
        """Remove ``path`` in ``delay_ms`` milliseconds. ``before`` is called just before that, to close
        files."""
        self._added += 1
        heappush(self._waiting, (self._clock.monotonic() + delay_ms / 1000, self._added, path, before))
        self._more.set()

    async def run(self) -> None:
        """Remove each path when its time comes. A failure is logged, and the path is left to the next start."""
        while True:
            self._more = trio.Event()
            if not self._waiting:
                await self._more.wait()
            elif self._waiting[0][0] > self._clock.monotonic():
                with self._clock.move_on_at(self._waiting[0][0]):
                    await self._more.wait()
            else:
                _, _, path, before = heappop(self._waiting)
                if before is not None:
                    before()
                with self._background.running("removal of files"):
                    await self._remove(path)

    async def _remove(self, path: str) -> None:
        try:
            if self._files.is_dir(path):
                # In a worker thread: the kernel needs milliseconds to free a large file's blocks.
                await self._files.offload(partial(self._files.remove_tree, path))
            else:
                await self._files.offload(partial(self._files.remove, path))
        except FileNotFoundError:
            pass  # it went with its directory
        except OSError as error:
            _log.error("cannot remove", path=path, error=str(error))
