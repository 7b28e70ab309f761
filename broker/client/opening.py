"""Opens a connection to a broker: connecting, TLS, versions, log-in."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.broker.client.connection import SOFTWARE_NAME, ClientConnection
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import Connect
from oncelog.wire.errors import ErrorCode, KafkaError

CONNECT_TIMEOUT_S = 10.0
"""Kafka's ``socket.connection.setup.timeout.ms``. Here it limits connecting and the first ApiVersions together."""
PERHAPS_TLS = "(perhaps it wants TLS: security.protocol)"


async def open_connection(
    connect: Connect,
    host: str,
    port: int,
    client_id: str | None = SOFTWARE_NAME,
    *,
    timeout_s: float = CONNECT_TIMEOUT_S,
    security: ClientSecurity | None = None,
    marked: Callable[[bytes], bytes] | None = None,
) -> ClientConnection:
    """Connect to a broker, shake hands (TLS), negotiate versions and log in (SASL). Returns the connection. For
    ``marked`` see `ClientConnection`.

    Raises KafkaError: NETWORK_EXCEPTION if connecting fails, REQUEST_TIMED_OUT after ``timeout_s``;
    AuthenticationError, with a message of one line.
    """
    about = address_text(host, port)
    connection = None
    is_open = False
    with real_time.move_on_after(timeout_s):
        try:
            transport = await connect(host, port)
            if security is not None:
                transport = await security.secured(transport, host)
            connection = ClientConnection(transport, client_id, security=security, marked=marked)
            await connection.negotiate()
            if security is not None:
                await connection.log_in()
            is_open = True
            return connection
        except OSError as error:
            text = f"{about}: {error.strerror or error}"
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, text) from error
        except KafkaError as error:
            wants_tls = security is None or not security.protocol.endswith("SSL")
            if error.code is ErrorCode.NETWORK_EXCEPTION and connection is not None and wants_tls:
                text = f"{error.message} {PERHAPS_TLS}"
                raise KafkaError(error.code, text) from error
            raise
        finally:
            if connection is not None and not is_open:
                connection.close()
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{about}: not connected within {timeout_s:g} s")
