"""`open_listeners`: the listeners of a node or a proxy, on the operating system's sockets."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from oncelog.broker.net.listen import open_listener

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.listeners import ListenerConfig
    from oncelog.broker.net.server import BoundListener


@contextmanager
def open_listeners(
    listeners: Iterable[ListenerConfig], config: BrokerConfig
) -> Iterator[list[BoundListener]]:
    """Listen on all of them; close them in the end. Raises ListenError for an address that cannot be used, ConfigError
    for security settings that cannot be.
    """
    with ExitStack() as opened:
        bound = []
        for listener in listeners:
            bound.append(open_listener(listener, config))
            opened.callback(bound[-1].listener.close)
        yield bound
