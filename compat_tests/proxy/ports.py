"""Ports for a proxy, which presents each node by a port of its own."""

import contextlib
import random
import socket

ATTEMPTS = 50
PORTS = range(15_000, 32_000)
"""Below those that Linux gives to outgoing connections: one of them may take any other port before it is bound."""


def adjacent_ports(count: int) -> int:
    """The first of `count` adjacent ports of 127.0.0.1 that were free a moment ago."""
    for _ in range(ATTEMPTS):
        first = random.choice(PORTS)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for number in range(count):
                stack.enter_context(socket.socket()).bind(("", first + number))
            return first
    raise AssertionError(f"no {count} adjacent free ports")
