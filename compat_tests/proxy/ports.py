"""Ports for a proxy, which presents each node by a port of its own."""

import contextlib
import socket

ATTEMPTS = 20


def adjacent_ports(count: int) -> int:
    """The first of `count` adjacent ports of 127.0.0.1 that were free a moment ago."""
    for _ in range(ATTEMPTS):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first = 0
            for number in range(count):
                one = stack.enter_context(socket.socket())
                one.bind(("127.0.0.1", first + number if first else 0))
                first = first or one.getsockname()[1]
            return first
    raise AssertionError(f"no {count} adjacent free ports")
