"""`ProcessCarrier`: a broker in a child process, for programs that keep Python's interpreter busy themselves.

Parent and child send each other pickled tuples over a pair of sockets: (number, operation, arguments) or, to cancel,
(number, None, None); and (number, result, error). The child ends when its socket does, however its parent ended.
"""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from outcome import Error, Value

from oncelog.broker.control.errors import BrokerFailedError, NotRunningError
from oncelog.broker.embedded.carrier import closing
from oncelog.broker.seams import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outcome import Outcome

    from oncelog.broker.control.controlled import ControlledOptions

STOP_TIMEOUT_S = 30
"""Seconds that a child may take to flush its data and end; then it is killed."""

_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from oncelog.broker.embedded.child import main; main()"


class ProcessCarrier:
    """See `Carrier`. The child begins at once; the broker with the operation ``start``.

    If it is forgotten, or the interpreter ends, it is closed, too.
    """

    def __init__(self, options: ControlledOptions) -> None:
        self._child = _Child(options)
        self._close = closing(self, self._child.close)

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[Outcome[Any]], None]
    ) -> Callable[[], None]:
        """See `Carrier`."""
        return self._child.submit(operation, arguments, on_done)

    def close(self) -> None:
        """See `Carrier`."""
        self._close()


class _Child:
    """The process, the calls that it has not answered, and the thread that reads its answers."""

    def __init__(self, options: ControlledOptions) -> None:
        with forks.changing:
            ours, theirs = socket.socketpair()
            forks.note_socket(ours)
            forks.note_socket(theirs)
        ours.settimeout(None)  # whatever the program's socket.setdefaulttimeout says
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *sys.path],
                # The one descriptor that is the same there, also where standard streams of this process are closed.
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
            )
        finally:
            forks.close_socket(theirs)
        self._socket = ours
        self._lock = threading.Lock()
        """Held while a message is written, and for `_calls`."""
        self._calls: dict[int, Callable[[Outcome[Any]], None]] | None = {}
        """None: the child has ended."""
        self._numbers = count()
        ours.sendall(pickle.dumps(options))
        self._reader = threading.Thread(target=self._read, name="oncelog", daemon=True)
        self._reader.start()

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[Outcome[Any]], None]
    ) -> Callable[[], None]:
        number = next(self._numbers)
        with self._lock:
            if self._calls is None:
                raise NotRunningError("the broker was closed, or its process has ended: make a new one")
            self._calls[number] = on_done
            self._send((number, operation, dict(arguments)))

        def cancel() -> None:
            with self._lock:
                if self._calls is not None and number in self._calls:
                    self._send((number, None, None))

        return cancel

    def close(self) -> None:
        with suppress(OSError):  # the child has ended
            self._socket.shutdown(socket.SHUT_WR)
        if threading.current_thread() is not self._reader:
            self._reader.join(STOP_TIMEOUT_S)  # it ends when the child closes its socket
            if self._reader.is_alive():
                self._process.kill()
        self._process.wait()  # without a limit, or it would poll with time.sleep, which a test may have replaced
        self._socket.close()

    def _send(self, message: tuple[int, str | None, object]) -> None:
        with suppress(OSError):  # the child has ended: the reader says so to every caller
            self._socket.sendall(pickle.dumps(message))

    def _read(self) -> None:
        with self._socket.makefile("rb") as answers:
            while True:
                try:
                    number, result, error = pickle.load(answers)
                except (EOFError, OSError):
                    break
                with self._lock:
                    assert self._calls is not None
                    on_done = self._calls.pop(number)
                on_done(Value(result) if error is None else Error(error))
        with self._lock:
            left, self._calls = self._calls or {}, None
        for on_done in left.values():
            on_done(Error(BrokerFailedError("the broker's process has ended")))
