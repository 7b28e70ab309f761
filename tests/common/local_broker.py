"""The base class of brokers that run as a process: data directory, stop, kill and restart."""

import pathlib
import tempfile
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from tests.common.process import Process


class LocalBroker(ABC):
    """A broker in its own process; a context manager that starts and stops it.

    A given `data_dir` is kept; without one the data is deleted with the context.
    """

    def __init__(self, data_dir: pathlib.Path | None, prefix: str) -> None:
        self._own_dir = None if data_dir else tempfile.TemporaryDirectory(prefix=prefix)
        self.data_dir = data_dir or pathlib.Path(self._own_dir.name) / "data"  # type: ignore[union-attr]
        self.process: Process | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start, and return when the broker serves. Raises AssertionError with its output."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self) -> int | None:
        """Stop cleanly (SIGTERM). Returns the exit code, or None if it did not run."""
        return self._end(kill=False)

    def kill(self) -> None:
        """Send SIGKILL to the broker's process."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> int | None:
        if self.process is None:
            return None
        code = self.process.end(kill=kill)
        self.process = None
        return code

    def restart(self) -> None:
        """Stop cleanly, if running, and start on the same data and ports."""
        self.stop()
        self.start()

    def output(self) -> str:
        """The last lines that the running broker wrote."""
        return self.process.output() if self.process is not None else ""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._delete_data()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._delete_data()

    def _delete_data(self) -> None:
        if self._own_dir is not None:
            self._own_dir.cleanup()
