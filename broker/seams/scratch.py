"""`ScratchDirectory`: a directory for data that ends with its process. `sweep`: removes those of killed
processes.

Such a directory holds `SCRATCH_MARK`, a file that its process keeps locked, and gets its final name only after
that. So a directory with such a name whose mark can be locked has lost its process.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import ExitStack, suppress

from oncelog.broker.seams.platforms import lock_file

SCRATCH_MARK = ".oncelog-ephemeral"
NAME = re.compile("oncelog-[0-9a-f]{16}")
"""The names of such directories. `sweep` touches nothing else."""
_UNFINISHED = ".new"


class ScratchDirectory:
    """The directory ``path``, whose last part `NAME` matches, for this user only. Raises OSError where it cannot be
    made."""

    def __init__(self, path: str) -> None:
        self.path = path
        unfinished = path + _UNFINISHED
        with ExitStack() as undo:
            os.mkdir(unfinished, 0o700)
            undo.callback(shutil.rmtree, unfinished, ignore_errors=True)
            self._mark = os.open(f"{unfinished}/{SCRATCH_MARK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, self._mark)
            lock_file(self._mark)
            os.rename(unfinished, path)
            undo.pop_all()

    def remove(self) -> None:
        """Remove it with all that is in it, as far as the system lets us."""
        _remove(self.path)
        os.close(self._mark)


def sweep(parent: str) -> list[str]:
    """Remove the scratch directories of killed processes of this user; the paths of those that were."""
    removed = []
    with suppress(OSError):
        for name in sorted(os.listdir(parent)):
            path = os.path.join(parent, name)
            if NAME.fullmatch(name) and _removed_if_left(path):
                removed.append(path)
    return removed


def _removed_if_left(path: str) -> bool:
    try:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        mark = os.open(f"{path}/{SCRATCH_MARK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        lock_file(mark)
        _remove(path)
    except OSError:
        return False
    finally:
        os.close(mark)
    return not os.path.exists(path)


def _remove(path: str) -> None:
    """The mark goes last, so that what a process that is killed meanwhile leaves is found by the next."""
    with suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.name == SCRATCH_MARK:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with suppress(OSError):
                    os.remove(entry.path)
        if os.listdir(path) == [SCRATCH_MARK]:
            os.remove(f"{path}/{SCRATCH_MARK}")
            os.rmdir(path)
