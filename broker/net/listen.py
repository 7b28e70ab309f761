"""Opens the listeners of a configuration on the operating system's sockets."""

from __future__ import annotations

import errno

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import StartError
from oncelog.broker.config.listeners import PLAINTEXT, ListenerConfig, ListenerEndpoint
from oncelog.broker.net.server import BoundListener
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.transport import SocketListener


class ListenError(StartError):
    """An address that cannot be listened on. The message is for the user and names it."""

    @classmethod
    def of(cls, endpoint: ListenerEndpoint, error: OSError) -> ListenError:
        """The error for the user that stands for ``error``."""
        hint = "; port 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        return cls(
            f"cannot listen on {address_text(endpoint.host, endpoint.port)}: {error.strerror or error}{hint}"
        )


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
    advertised = listener.advertised or listener.bind
    return BoundListener(
        listener.bind.listener,
        bound,
        advertised.host or bound.address[0],
        advertised.port or bound.address[1],
        listener.protocol,
        security,
    )
