"""`TraceOutput`: lines of a trace to a sink that never waits for its reader."""

from __future__ import annotations

from oncelog.broker.logging.logs import Sink


class TraceOutput:
    """Writes lines; where its reader is too slow, says how many were lost."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, line: str) -> None:
        """Write a line."""
        self._sink.write(line.encode("utf-8", "backslashreplace") + b"\n")
        lost = self._sink.take_lost()
        if lost:
            self._sink.write(b"# %d lines were lost: nobody read them\n" % lost)
