"""`serve_controlled`: the command's broker when something is to control it: the control API, rules, a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog import __version__
from oncelog.broker.config.listeners import ListenerEndpoint
from oncelog.broker.control.controlled_broker import ControlledBroker
from oncelog.broker.control.errors import BrokerFailedError
from oncelog.broker.control.options import REQUESTS_KEPT, BrokerOptions
from oncelog.broker.net.listen import ListenError
from oncelog.broker.seams.transport import SocketListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.control_settings import ControlSettings
    from oncelog.broker.logs import LogOutput
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.node import Node
    from oncelog.broker.security.sasl.users import Users

CONTROL_BACKLOG = 100


async def serve_controlled(
    config: BrokerConfig,
    settings: ControlSettings,
    on_ready: Callable[[Node, list[BoundListener], tuple[str, int] | None], None],
    output: LogOutput,
    *,
    host_name: str,
    seed: int,
    on_crash: Callable[[], None],
    write_trace: Callable[[str], None],
    durable: bool,
    users: Users,
) -> None:
    """Run a broker until cancelled, then stop it cleanly. Calls ``on_ready`` when it answers requests, with the address
    of the control API. Log lines go to ``output``, too. ``users`` may log in.

    At a crash point of a rule it calls ``on_crash``, which ends the process; with a control API only the broker dies,
    and who controls it can start it again. ``write_trace`` gets the lines of a trace.

    Raises ListenError, and BrokerFailedError if the broker cannot start, or ends by itself.
    """
    options = BrokerOptions(
        config=config.texts,
        data_dir=None if settings.in_memory else config.data_dir,
        seed=seed,
        requests_kept=0 if settings.address is None else REQUESTS_KEPT,
        version=settings.version,
        from_snapshot=settings.from_snapshot,
        origins=config.origins,
        host_name=host_name,
        is_durable=durable,
        users=users,
    )
    listener = None if settings.address is None else _open_control(*settings.address)
    broker = ControlledBroker(
        options,
        output.also_to,
        settings.rules,
        observer=settings.interceptors.trace(write_trace, "handler"),
        filters=settings.interceptors.filters,
    )
    if settings.address is None:
        broker.on_crash = on_crash
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            await broker.start()
            address = None
            if listener is not None:
                address = listener.address
                await nursery.start(_serve_control, broker, listener, settings.token)
            on_ready(broker.node, broker.listeners, address)
            failure = await broker.wait_failed()
            raise BrokerFailedError(f"the broker ended by itself: {failure!r}") from failure
    finally:
        if listener is not None:
            listener.close()


def _open_control(host: str, port: int) -> SocketListener:
    try:
        return SocketListener.bind(host, port, CONTROL_BACKLOG)
    except OSError as error:
        raise ListenError.of(ListenerEndpoint("CONTROL", host, port), error) from error


async def _serve_control(
    broker: ControlledBroker,
    listener: SocketListener,
    token: str | None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    from oncelog.broker.control_http.app import control_app
    from oncelog.broker.control_http.server import serve_control

    app = control_app(broker.call, token=token, version=__version__)
    await serve_control(app, listener, task_status=task_status)
