"""Sockets and locks that a child made by fork must not keep.

A child shares each descriptor of its parent. While it lives, the parent's ports stay bound, its clients see no end of
their connections, and its locks are held, whatever the parent closes. So the child closes its copies: only that, for a
shutdown, an unlock or a change of an epoll would reach the parent's.

Nothing is called at a fork before `close_in_children`. Python cannot take the functions back: they stay with the
process.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

changing = threading.RLock()
"""Held while a descriptor is opened and noted, or closed. A fork waits for it: the system calls let other threads run,
and a fork between one and its note would copy a descriptor that nobody knows."""

_noted: WeakKeyDictionary[object, Callable[[object], None]] = WeakKeyDictionary()
"""Owner of descriptors -> what closes them."""
_is_registered = False


def note(owner: T, close: Callable[[T], None]) -> None:
    """Let children call ``close`` with ``owner``, while that lives. It may only close descriptors, must forget their
    numbers, which the child uses again, and may have nothing to do. Call it with `changing` held.
    """
    _noted[owner] = close  # type: ignore[assignment]  # it is called with its owner only


def note_socket(owner: socket.socket) -> None:
    """Let children close a socket."""
    note(owner, _close_socket)


def close_socket(owner: socket.socket) -> None:
    """Close a socket that was noted."""
    with changing:
        owner.close()


def close_in_children() -> None:
    """Let each fork of this process from now on close what was noted."""
    global _is_registered
    with changing:
        if not _is_registered:
            _is_registered = True
            os.register_at_fork(
                before=changing.acquire, after_in_parent=changing.release, after_in_child=_close_all
            )


def _close_all() -> None:
    """Close everything, in the child."""
    try:
        for owner, close in list(_noted.items()):
            with suppress(OSError):
                close(owner)
        _noted.clear()
    finally:
        changing.release()


def _close_socket(owner: socket.socket) -> None:
    """Close the descriptor also if a file of the socket is open, unlike `socket.socket.close`."""
    descriptor = owner.detach()
    if descriptor != -1:
        os.close(descriptor)
