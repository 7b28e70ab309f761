"""The real proxy: a `Proxy` on the operating system's sockets and clock. It changes nothing that belongs to the
process."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import trio

from oncelog.broker.net.listen import ListenError, open_listener
from oncelog.broker.proxy.proxy import Proxy
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.clock import SystemClock
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.broker.seams.pipes import SocketPipes
from oncelog.broker.seams.reactor import SocketReactor
from oncelog.broker.seams.transport import SocketListener, connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.proxy.node_ports import BindNode
    from oncelog.broker.proxy.settings import ProxySettings
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem


ADDRESSES = "--listen is where clients connect to the proxy, --upstream where the cluster is"
"""A hint for users who mixed up the two, or left out --listen on the cluster's machine."""


async def serve_proxy(
    settings: ProxySettings,
    on_ready: Callable[[Proxy, list[BoundListener]], None],
    *,
    on_loaded: Callable[[Proxy], None] = lambda proxy: None,
) -> None:
    """Run a proxy until cancelled. Calls ``on_ready`` when it passes requests on, ``on_loaded`` before it listens.

    Raises ListenError for an address that cannot be used, UpstreamError for a cluster that cannot be,
    DataDirectoryError for a data directory that cannot be.
    """
    bound_listeners: list[BoundListener] = []
    try:
        try:
            for listener in settings.listeners:
                bound_listeners.append(open_listener(listener, settings.config))
        except ListenError as error:
            raise ListenError(f"{error}; {ADDRESSES}") from error
        proxy = new_proxy(
            settings,
            bind_node=node_binder(settings.config),
            clock=SystemClock(),
            rng=random.Random(),
            on_loaded=on_loaded,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(_run, proxy, bound_listeners)
            on_ready(proxy, bound_listeners)
    finally:
        for bound in bound_listeners:
            bound.listener.close()


def new_proxy(
    settings: ProxySettings,
    *,
    bind_node: BindNode,
    clock: Clock,
    rng: random.Random,
    on_loaded: Callable[[Proxy], None],
) -> Proxy:
    """Return a proxy on the operating system's sockets."""
    files: FileSystem = MemoryFileSystem()
    if settings.data_dir is not None:
        from oncelog.broker.seams.os_files import OsFileSystem

        files = OsFileSystem()
    return Proxy(
        settings.config,
        settings.upstream,
        connect=connect,
        bind_node=bind_node,
        files=files,
        clock=clock,
        rng=rng,
        data_dir=settings.data_dir,
        first_node_ports=settings.first_node_ports,
        users=settings.users,
        acls=settings.acls,
        logins=settings.logins,
        pipes=SocketPipes() if settings.config.oncelog_splice_enable else None,
        reactor=SocketReactor() if settings.config.oncelog_reactor_enable else None,
        on_loaded=on_loaded,
    )


async def _run(
    proxy: Proxy, bound_listeners: list[BoundListener], task_status: trio.TaskStatus[None]
) -> None:
    await proxy.run(bound_listeners, task_status=task_status)


def node_binder(config: BrokerConfig) -> BindNode:
    """Return what binds the listeners of nodes: where the proxy's own listens, with the same security."""

    def bind(main: BoundListener, node_id: int, port: int) -> BoundListener:
        host = main.listener.address[0]
        try:
            listener = SocketListener.bind(host, port, config.socket_listen_backlog_size)
        except OSError as error:
            hint = "; --node-ports PORT takes others" if error.errno == errno.EADDRINUSE else ""
            raise ListenError(
                f"cannot listen on {address_text(host, port)} for upstream node {node_id}: {error.strerror}{hint}"
            ) from error
        listener.set_buffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)
        return main._replace(listener=listener, port=listener.address[1], node_id=node_id)

    return bind
