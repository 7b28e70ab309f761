"""What the Python programs of the zoo share: where they run, and a stop at SIGTERM."""

import os
import signal

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
FOLDER = os.environ.get("ONCELOG_PROVE_DIR", ".")
INSTANCE = os.environ.get("ONCELOG_PROVE_INSTANCE", "1")

_stopped: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: _stopped.append(number))


def running() -> bool:
    """Whether nobody has asked the program to stop."""
    return not _stopped
