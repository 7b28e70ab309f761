"""The errors of the test kit, and its warning. Every message names the cause and, where there is one, the remedy.

All can be pickled with nothing but their message: a broker in a child process raises them too.
"""

from __future__ import annotations


class OncelogError(Exception):
    """Every error of the test kit but `KafkaError` is one of these."""


class InvalidArgumentError(OncelogError, ValueError):
    """An invalid argument. Nothing was changed."""


class NotFoundError(OncelogError, LookupError):
    """There is no topic, partition, group, transactional id or request of that name. The message says what there is."""


class NotRunningError(OncelogError, RuntimeError):
    """The broker does not run: it was stopped, killed or closed, it died at a crash point, or it belongs to the process
    that forked this one."""


class BrokerFailedError(OncelogError, RuntimeError):
    """The broker ended by itself: it could not start, or met a defect of its own."""


class UnsupportedError(OncelogError, RuntimeError):
    """The broker cannot do that, such as losing power on a real disk."""


class SnapshotError(OncelogError):
    """A snapshot that cannot be written, read or loaded. Nothing was changed."""


class WaitTimeoutError(OncelogError, TimeoutError):
    """The wait timed out. The message says what happened instead."""


class LeftClientWarning(UserWarning):
    """A test has left clients behind that stay connected to a broker of later tests. The message names them."""


for _kind in (LeftClientWarning, OncelogError, *OncelogError.__subclasses__()):
    _kind.__module__ = "oncelog"  # where a program that sees one in a traceback imports it from
