"""The real broker: a `Node` on the operating system's files, sockets and clock.

It changes nothing that belongs to the process, so that a program may run several brokers beside its own work. The
command line sets the descriptor limit, signal handlers and the garbage collector.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from oncelog.broker.config.listeners import PLAINTEXT, address_text
from oncelog.broker.net.server import BoundListener
from oncelog.broker.node import Node
from oncelog.broker.seams.clock import SystemClock
from oncelog.broker.seams.os_files import OPEN_FILES_DEFAULT, OsFileSystem
from oncelog.broker.seams.transport import SocketListener

if TYPE_CHECKING:
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.listeners import ListenerConfig, ListenerEndpoint
    from oncelog.broker.security.sasl.users import Users


class ListenError(Exception):
    """An address that cannot be listened on. The message is for the user and names it."""

    @classmethod
    def of(cls, endpoint: ListenerEndpoint, error: OSError) -> ListenError:
        """The error for the user that stands for ``error``."""
        hint = "; --port 0 takes a free port" if error.errno == errno.EADDRINUSE else ""
        return cls(f"cannot listen on {address_text(endpoint.host, endpoint.port)}: {error.strerror}{hint}")


async def serve(
    config: BrokerConfig,
    listeners: Sequence[ListenerConfig],
    on_ready: Callable[[Node, list[BoundListener]], None],
    *,
    durable: bool = True,
    users: Users | None = None,
) -> None:
    """Run a broker until cancelled, then stop it cleanly. Calls ``on_ready`` when it answers requests.

    ``durable``: whether the data directory outlives the process. If not, nothing waits for the disk.
    ``users`` may log in.

    Raises ListenError for an address that cannot be used, DataDirectoryError for a data directory that cannot be used.
    """
    bound_listeners: list[BoundListener] = []
    try:
        for listener in listeners:
            bound_listeners.append(open_listener(listener, config))
        node = Node(
            config,
            files=OsFileSystem(config.oncelog_open_files_max or OPEN_FILES_DEFAULT, durable=durable),
            clock=SystemClock(),
            rng=random.Random(),
            users=users,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(_run, node, bound_listeners)
            on_ready(node, bound_listeners)
    finally:
        for bound in bound_listeners:
            bound.listener.close()


async def _run(node: Node, bound_listeners: list[BoundListener], task_status: trio.TaskStatus[None]) -> None:
    await node.run(bound_listeners, task_status=task_status)


def open_listener(listener: ListenerConfig, config: BrokerConfig) -> BoundListener:
    """Open one listener. Raises ListenError, and ConfigError for security settings that cannot be used."""
    security = None
    if listener.protocol != PLAINTEXT:
        from oncelog.broker.security.listener import ListenerSecurity

        security = ListenerSecurity(listener.bind.listener, listener.protocol, config)
    try:
        bound = SocketListener.bind(listener.bind.host, listener.bind.port, config.socket_listen_backlog_size)
    except OSError as error:
        raise ListenError.of(listener.bind, error) from error
    bound.set_buffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)
    told = listener.advertised or listener.bind
    return BoundListener(
        listener.bind.listener,
        bound,
        told.host or bound.address[0],
        told.port or bound.address[1],
        listener.protocol,
        security,
    )
