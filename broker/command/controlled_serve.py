"""`serve_controlled`, `serve_controlled_proxy`: the command's broker, or proxy, when something is to control it: the
control API, rules, filters, a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from oncelog import __version__
from oncelog.broker.config.listeners import ListenerEndpoint
from oncelog.broker.control.errors import BrokerFailedError
from oncelog.broker.control.options import REQUESTS_KEPT, SNAPSHOT_BYTES_MAX, BrokerOptions, TopicOptions
from oncelog.broker.net.listen import ListenError
from oncelog.broker.seams.transport import SocketListener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oncelog.broker.command.control_settings import ControlSettings
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster
    from oncelog.broker.logging.logs import LogOutput
    from oncelog.broker.metadata.acls import AclBinding
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.node.node import Node
    from oncelog.broker.proxy.proxy import Proxy
    from oncelog.broker.proxy.settings import ProxySettings
    from oncelog.broker.security.sasl.users import Users

CONTROL_BACKLOG = 100


async def serve_controlled(
    config: BrokerConfig,
    settings: ControlSettings,
    on_ready: Callable[[Node, list[BoundListener], tuple[str, int] | None], None],
    on_nodes_ready: Callable[[ControlledCluster, tuple[str, int] | None], None],
    output: LogOutput,
    *,
    host_name: str,
    seed: int,
    on_crash: Callable[[], None],
    write_trace: Callable[[str], None],
    durable: bool,
    users: Users,
    acls: Sequence[AclBinding] = (),
    topics: Mapping[str, TopicOptions],
) -> None:
    """Run a broker until cancelled, then stop it cleanly. Calls ``on_ready`` when it answers requests, with the address
    of the control API; for several nodes ``on_nodes_ready``. Log lines go to ``output``, too. ``users`` may log in,
    ``acls`` and ``topics`` are created if they are missing.

    At a crash point of a rule it calls ``on_crash``, which ends the process; with a control API only the broker dies,
    and who controls it can start it again. ``write_trace`` gets the lines of a trace.

    Raises ListenError, and BrokerFailedError if the broker cannot start, or ends by itself.
    """
    options = BrokerOptions(
        topics=topics,
        config=config.texts,
        data_dir=None if settings.in_memory else config.data_dir,
        seed=seed,
        requests_kept=_requests_kept(settings),
        version=settings.version,
        from_snapshot=settings.from_snapshot,
        snapshot_bytes_max=settings.snapshot_bytes_max or SNAPSHOT_BYTES_MAX,
        origins=config.origins,
        host_name=host_name,
        is_durable=durable,
        users=users,
        acls=tuple(acls),
    )
    if settings.nodes > 1:
        from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster
        from oncelog.broker.control.nodes.options import cluster_options

        cluster = ControlledCluster(
            cluster_options(settings.nodes, options), settings.extras(output, write_trace, "handler")
        )
        await _carry(cluster, settings, lambda _controller, _none, address: on_nodes_ready(cluster, address))
        return
    from oncelog.broker.control.controlled_broker import ControlledBroker  # of one node

    broker = ControlledBroker(options, settings.extras(output, write_trace, "handler"))
    if settings.address is None:
        broker.on_crash = on_crash
    await _carry(broker, settings, on_ready)


async def serve_controlled_proxy(
    settings: ProxySettings,
    control: ControlSettings,
    on_ready: Callable[[Proxy, list[BoundListener], tuple[str, int] | None], None],
    output: LogOutput,
    *,
    host_name: str,
    seed: int,
    write_trace: Callable[[str], None],
) -> None:
    """Run a proxy until cancelled. Calls ``on_ready`` when it passes requests on, with the address of the control API.
    Log lines go to ``output``, too, and the lines of a trace to ``write_trace``.

    Raises ListenError, and BrokerFailedError if the proxy cannot start, or ends by itself.
    """
    from oncelog.broker.control.controlled_proxy import ControlledProxy

    proxy = ControlledProxy(
        settings,
        seed=seed,
        requests_kept=_requests_kept(control),
        host_name=host_name,
        extras=control.extras(output, write_trace, "upstream"),
    )
    await _carry(proxy, control, on_ready)


def _requests_kept(settings: ControlSettings) -> int:
    """Return how many requests of each API the journal keeps: none where there is no control API to ask for them."""
    return 0 if settings.address is None else REQUESTS_KEPT


async def _carry(
    controlled: Controlled,
    settings: ControlSettings,
    on_ready: Callable[[Any, list[BoundListener], tuple[str, int] | None], None],
) -> None:
    """Start a broker or a proxy and its control API, announce them with the API's address, and wait until it fails."""
    listener = None if settings.address is None else _open_control(*settings.address)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(controlled.run)
            await controlled.start()
            address = None
            if listener is not None:
                address = listener.address
                await nursery.start(_serve_control, controlled, listener, settings.token)
            on_ready(controlled.runs.current, controlled.runs.listeners, address)
            failure = await controlled.runs.wait_failed()
            raise BrokerFailedError(f"it ended by itself: {failure!r}") from failure
    finally:
        if listener is not None:
            listener.close()


def _open_control(host: str, port: int) -> SocketListener:
    try:
        return SocketListener.bind(host, port, CONTROL_BACKLOG)
    except OSError as error:
        why = ListenError.of(ListenerEndpoint("CONTROL", host, port), error)
        raise ListenError(f"{why}; it is the control API's (--control)") from error


async def _serve_control(
    controlled: Controlled,
    listener: SocketListener,
    token: str | None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    from oncelog.broker.control_http.app import control_app
    from oncelog.broker.control_http.server import serve_control

    app = control_app(controlled.call, token=token, version=__version__)
    await serve_control(app, listener, task_status=task_status)
