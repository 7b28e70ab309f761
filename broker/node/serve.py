"""The real broker: a `Node` on the operating system's files, sockets and clock.

It changes nothing that belongs to the process, so that a program may run several brokers beside its own work. The
command line sets the descriptor limit, signal handlers and the garbage collector.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import trio

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import ListenerConfig
from oncelog.broker.host.host import open_listeners
from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.net.server import BoundListener
from oncelog.broker.node.node import Node, open_node
from oncelog.broker.seams.clock import SystemClock
from oncelog.broker.seams.os_files import OPEN_FILES_DEFAULT, OsFileSystem
from oncelog.broker.security.sasl.users import Users


async def serve(
    config: BrokerConfig,
    listeners: Sequence[ListenerConfig],
    on_ready: Callable[[Node, list[BoundListener]], None],
    *,
    durable: bool = True,
    users: Users | None = None,
    acls: Sequence[AclBinding] = (),
    prepare: Callable[[Node], None] | None = None,
) -> None:
    """Run a broker until cancelled, then stop it cleanly. Calls ``prepare`` before it answers requests, then
    ``on_ready``.

    ``durable``: whether the data directory outlives the process. If not, nothing waits for the disk.
    ``users`` may log in. ``acls`` are created if they are missing.

    Raises ListenError for an address that cannot be used, DataDirectoryError for a data directory that cannot be used.
    """
    with (
        open_listeners(listeners, config) as bound,
        open_node(
            config,
            bound,
            files=OsFileSystem(config.oncelog_open_files_max or OPEN_FILES_DEFAULT, durable=durable),
            clock=SystemClock(),
            rng=random.Random(),
            users=users,
            acls=acls,
        ) as node,
    ):
        if prepare is not None:
            prepare(node)
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            on_ready(node, bound)
