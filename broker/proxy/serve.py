"""The real proxy: a `Proxy` on the operating system's sockets and clock. It changes nothing that belongs to the
process."""

from __future__ import annotations

import errno
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING

import trio

from oncelog.broker.host.host import open_listeners
from oncelog.broker.net.listen import ListenError
from oncelog.broker.proxy.proxy import open_proxy
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.clock import SystemClock
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.broker.seams.pipes import SocketPipes
from oncelog.broker.seams.reactor import SocketReactor
from oncelog.broker.seams.transport import SocketListener, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.proxy.node_ports import BindNode
    from oncelog.broker.proxy.proxy import Proxy
    from oncelog.broker.proxy.settings import ProxySettings
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem


ADDRESSES = "--listen is where clients connect to the proxy, --upstream where the cluster is"
"""A hint for users who mixed up the two, or left out --listen on the cluster's machine."""


async def serve_proxy(
    settings: ProxySettings,
    on_ready: Callable[[Proxy, list[BoundListener]], None],
) -> None:
    """Run a proxy until cancelled. Calls ``on_ready`` when it forwards requests.

    Raises ListenError for an unusable address, UpstreamError for an unusable cluster, DataDirectoryError for an
    unusable data directory.
    """
    with ExitStack() as opened:
        try:
            bound = opened.enter_context(open_listeners(settings.listeners, settings.config))
        except ListenError as error:
            raise ListenError(f"{error}; {ADDRESSES}") from error
        proxy = opened.enter_context(
            open_proxy_on_sockets(
                settings,
                bound,
                bind_node=node_binder(settings.config),
                clock=SystemClock(),
                rng=random.Random(),
            )
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(proxy.run)
            on_ready(proxy, bound)


def open_proxy_on_sockets(
    settings: ProxySettings,
    listeners: Sequence[BoundListener],
    *,
    bind_node: BindNode,
    clock: Clock,
    rng: random.Random,
    on_loaded: Callable[[Proxy], None] = lambda proxy: None,
) -> AbstractContextManager[Proxy]:
    """See `open_proxy`; the proxy is on the operating system's sockets."""
    files: FileSystem = MemoryFileSystem()
    if settings.data_dir is not None:
        files = OsFileSystem()
    return open_proxy(
        settings,
        listeners,
        connect=connect,
        bind_node=bind_node,
        files=files,
        clock=clock,
        rng=rng,
        pipes=SocketPipes() if settings.config.oncelog_splice_enable else None,
        reactor=SocketReactor() if settings.config.oncelog_reactor_enable else None,
        on_loaded=on_loaded,
    )


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
