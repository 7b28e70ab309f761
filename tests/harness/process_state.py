"""What belongs to the process, and a library must leave as it was."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import sys
import threading

_frozen: list[int] = []


def _has_frozen() -> bool:
    """Whether anything was frozen since the last call. What pytest's process has frozen becomes less by itself."""
    before, _frozen[:] = _frozen[-1:], [gc.get_freeze_count()]
    return bool(before) and _frozen > before


def state_of_the_process() -> dict[str, object]:
    """What a library must leave as it was. Trio itself keeps idle worker threads for some seconds."""
    return {
        "threads": {thread.name for thread in threading.enumerate() if not thread.name.startswith("Trio ")},
        "descriptors": {
            number: os.readlink(f"/proc/self/fd/{number}")
            for number in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{number}")
        },
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "wakeup descriptor": signal_wakeup_fd(),
        "has frozen": _has_frozen(),
        "collector": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
        "log handlers": (
            list(logging.root.handlers),
            logging.root.level,
            sorted(logging.root.manager.loggerDict),
        ),
        "limit of descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "streams": (sys.stdout, sys.stderr),
        "directory": os.getcwd(),
        "mask": os.umask(os.umask(0o22)),
    }


def signal_wakeup_fd() -> int:
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number)
    return number
