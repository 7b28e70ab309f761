"""The child process of a `ProcessCarrier`: it carries one broker, and performs what its parent asks for."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from outcome import Outcome

from oncelog.broker.control.errors import BrokerFailedError
from oncelog.broker.embedded.thread_carrier import ThreadCarrier

STDIN = 0


def main() -> None:
    """Perform the operations that come on the socket that is its standard input until it ends."""
    # Ctrl-C reaches every process of a terminal. It is the parent's to decide what it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _standard_input() as parent:
        parent.setblocking(True)  # gevent's sockets are not
        requests, answers = parent.makefile("rb"), parent.makefile("wb")
        lock = threading.Lock()
        carrier = ThreadCarrier(pickle.load(requests))
        cancels: dict[int, Callable[[], None]] = {}

        def answer(number: int, outcome: Outcome[Any]) -> None:
            message = _message(number, outcome)
            with lock:
                cancels.pop(number, None)
                try:
                    answers.write(message)
                    answers.flush()
                except OSError:
                    pass  # the parent has gone

        while True:
            try:
                number, operation, arguments = pickle.load(requests)
            except (EOFError, OSError):
                break
            if operation is None:
                cancel = cancels.get(number)
                if cancel is not None:
                    cancel()
                continue
            cancels[number] = lambda: None
            cancel = carrier.submit(operation, arguments, partial(answer, number))
            with lock:
                if number in cancels:
                    cancels[number] = cancel
        carrier.close()


def _standard_input() -> socket.socket:
    """Return the standard input as a socket; what reads the standard input finds nothing from now on."""
    parent = socket.socket(fileno=os.dup(STDIN))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    return parent


def _message(number: int, outcome: Outcome[Any]) -> bytes:
    try:
        return pickle.dumps((number, outcome.unwrap(), None))
    except BaseException as error:
        try:
            message = pickle.dumps((number, None, error))
            pickle.loads(message)
        except Exception:
            text = "".join(traceback.format_exception(error))
            return pickle.dumps((number, None, BrokerFailedError(f"in the broker's process:\n{text}")))
        return message
