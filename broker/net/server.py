"""Listeners, and the limits that hold for all connections together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.net.base_connection import BaseConnection
from oncelog.broker.net.held_bytes import LOGIN_BYTES_MAX, UNSENT_BYTES_MAX, HeldBytes
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.dispatch.interception import Interception
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.transport import Transport
    from oncelog.broker.security.connection_rates import ConnectionRates
    from oncelog.broker.security.listener import ListenerSecurity

SHARED_BUFFER_BYTES = 256 * 1024
"""Size of the receive buffer that all connections share."""
POOLED_BUFFER_BYTES = 1024 * 1024 + 64 * 1024
"""Size of the buffers kept for frames larger than the shared one: a client's largest batch by default fits."""
FIRST_BUFFER_BYTES = 32 * 1024
"""Size of a new buffer for such a frame, until more of the frame has come: announcing a large one costs nothing."""
POOLED_BUFFERS_MAX = 4
"""How many such buffers are kept while nobody uses them."""
ACCEPT_RETRY_SECONDS = 0.1
"""Pause after a failed accept (no descriptors left), before it is tried again."""

log = get_logger(__name__)


class TransportListener(Protocol):
    address: tuple[str, int]

    def accept(self) -> Transport | None: ...

    async def wait_for_connection(self) -> None: ...

    def close(self) -> None: ...


class BoundListener(NamedTuple):
    """An open listener, and the address that its clients are told (``advertised.listeners``)."""

    name: str
    listener: TransportListener
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    """Kafka: ``SecurityProtocol``."""
    security: ListenerSecurity | None = None
    """None: every peer is anonymous, and nothing is encrypted."""
    node_id: int | None = None
    """The node, of several in this process, or of those behind a proxy, that it stands for; None for the only one, or
    for any of them."""


class ServerServices(Protocol):
    """The parts of a node or proxy that its server uses."""

    @property
    def config(self) -> DynamicBrokerConfig: ...

    @property
    def files(self) -> FileSystem: ...

    @property
    def lines(self) -> LineLimiter: ...

    @property
    def note_internal_error(self) -> Callable[[], None]: ...

    @property
    def disconnect_observers(self) -> list[Callable[[], None]]: ...


ConnectionT = TypeVar("ConnectionT", bound=BaseConnection)


class ByteBudget:
    """Bytes that unfinished frames may take (``queued.max.request.bytes``); -1: no limit.

    As in Kafka's SimpleMemoryPool, a frame is admitted while any byte is free, so one frame may exceed the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._room = trio.Event()

    async def reserve(self, size: int) -> None:
        """Take ``size`` bytes; waits while nothing is free."""
        while 0 <= self.limit <= self.used:
            await self._room.wait()
        self.used += size

    def release(self, size: int) -> None:
        was_full = 0 <= self.limit <= self.used
        self.used -= size
        if was_full and self.used < self.limit:
            self._room.set()
            self._room = trio.Event()


class Server(Generic[ConnectionT]):
    """Accepts connections and gives each a task; owns what they share. ``new_connection`` makes the connection of an
    accepted transport.
    """

    def __init__(
        self,
        services: ServerServices,
        interception: Interception,
        listeners: list[BoundListener],
        rates: ConnectionRates,
        new_connection: Callable[[Server[ConnectionT], Transport, BoundListener], ConnectionT],
    ) -> None:
        config = services.config.current
        self.listeners = listeners
        self.files = services.files
        self.lines = services.lines
        self.note_internal_error: Callable[[], None] = services.note_internal_error
        self._disconnect_observers = services.disconnect_observers
        self.receive_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.max_frame_bytes = config.socket_request_max_bytes
        self.frame_budget = ByteBudget(config.queued_max_request_bytes)
        self.unsent = HeldBytes(UNSENT_BYTES_MAX, "responses that the client does not read")
        self.logins = HeldBytes(LOGIN_BYTES_MAX, "an incomplete frame before the log-in")
        self.connections: set[ConnectionT] = set()
        self.yielding = 0
        """Connections that have more to do, and let others have their turn first."""
        self.is_cut_off = False
        """Whether new connections are closed at once: a test keeps the clients away."""
        self._config = services.config
        self._interception = interception
        self._rates = rates
        self._new_connection = new_connection
        self.nursery: trio.Nursery
        self._per_address: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._spare: list[bytearray] = []
        self._room = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the listeners and every connection are closed then. Raises ConfigError before it
        serves, if a listener cannot fetch what its security needs.
        """
        try:
            for bound in self.listeners:
                if bound.security is not None:
                    await bound.security.prepare()
            async with trio.open_nursery() as self.nursery:
                for bound in self.listeners:
                    if bound.security is not None:
                        self.nursery.start_soon(bound.security.run)
                    self.nursery.start_soon(self._accept, bound)
                self.nursery.start_soon(self._close_idle)
                task_status.started()
        finally:
            for bound in self.listeners:
                bound.listener.close()

    def cut_off(self) -> None:
        """Close all connections, and new ones at once, until `is_cut_off` is False again."""
        self.is_cut_off = True
        for connection in list(self.connections):
            connection.close("cut off by a test")

    def add(self, bound: BoundListener) -> None:
        """Accept connections from one more listener. It shares its `security` with a listener that is there already."""
        self.listeners.append(bound)
        self.nursery.start_soon(self._accept, bound)

    async def _accept(self, bound: BoundListener) -> None:
        listener = bound.listener
        while True:
            while not self._rates.limits.have_room(
                bound.name, self._per_listener[bound.name], len(self.connections)
            ):
                # As Kafka's acceptor does; new connections stay in the listen queue.
                await self._room.wait()
            try:
                transport = listener.accept()
            except OSError as error:
                self.lines.write(log.error, "cannot accept a connection", {}, error=error)
                await real_time.sleep(ACCEPT_RETRY_SECONDS)
                continue
            if transport is None:
                await listener.wait_for_connection()
                continue
            wait_ms = self._rates.accepted(bound.name)
            if wait_ms:  # Kafka's acceptor sleeps, too, after it has accepted the connection.
                try:
                    await real_time.sleep(wait_ms / 1000)
                except BaseException:
                    transport.close()
                    raise
            self._admit(transport, bound)

    async def _close_later(self, transport: Transport, wait_ms: int) -> None:
        """Close a connection that exceeds the connection rate of its address, but only after ``wait_ms``, so that the
        client does not reconnect at once.
        """
        try:
            await real_time.sleep(wait_ms / 1000)
        finally:
            transport.close()

    def reconsider_limits(self) -> None:
        """Look again whether there is room for a connection: one has been closed, or the configuration changed."""
        self._room.set()
        self._room = trio.Event()

    def _admit(self, transport: Transport, bound: BoundListener) -> None:
        accepts = self._interception.accepts
        if self.is_cut_off or (accepts is not None and not accepts(bound.name, bound.node_id)):
            transport.close()
            return
        address = _address_of(transport)
        wait_ms = self._rates.accepted_from(bound.name, address)
        if wait_ms:
            self.nursery.start_soon(self._close_later, transport, wait_ms)
            return
        config = self._config.current
        limit = config.connection_limits.get(address, config.max_connections_per_ip)
        if self._per_address[address] >= limit:
            self.lines.write(
                log.warning,
                "connection closed",
                {
                    "peer": address,
                    "reason": f"{limit} connections from its address already (max.connections.per.ip)",
                },
            )
            transport.close()
            return
        if bound.security is not None:
            try:
                transport = bound.security.wrap(transport)
            except OSError:  # the peer has gone
                transport.close()
                return
        self._per_address[address] += 1
        self._per_listener[bound.name] += 1
        connection = self._new_connection(self, transport, bound)
        self.connections.add(connection)
        self.nursery.start_soon(connection.serve)

    def forget(self, connection: ConnectionT) -> None:
        """Take note that ``connection`` was closed: there is room for another one."""
        address = _address_of(connection.transport)
        self.connections.discard(connection)
        self._per_listener[connection.listener_name] -= 1
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
        self.reconsider_limits()
        for observe in self._disconnect_observers:
            observe()

    async def _close_idle(self) -> None:
        idle_seconds = self._config.current.connections_max_idle_ms / 1000
        if idle_seconds <= 0:
            return
        while True:
            now = real_time.monotonic()
            oldest = now
            for connection in list(self.connections):
                since = connection.idle_since()
                if since is None:
                    continue
                if now - since >= idle_seconds:
                    connection.close(f"idle for {idle_seconds:g} s (connections.max.idle.ms)")
                else:
                    oldest = min(oldest, since)
            await real_time.sleep_until(oldest + idle_seconds)

    def take_buffer(self, size: int) -> bytearray:
        """Return memory for a frame of ``size`` bytes, or for its beginning: `grow` it as the bytes arrive."""
        if self._spare and size <= POOLED_BUFFER_BYTES:
            return self._spare.pop()
        return bytearray(FIRST_BUFFER_BYTES)

    @staticmethod
    def grow(buffer: bytearray, size: int) -> None:
        """Make room in a buffer that is full, for more of a frame of ``size`` bytes."""
        have = len(buffer)
        buffer.extend(bytes(max(POOLED_BUFFER_BYTES, min(size, 4 * have)) - have))

    @staticmethod
    def grow_slowly(buffer: bytearray, size: int) -> int:
        """As `grow`, for a frame before the log-in: to twice its size at most. Return by how many bytes."""
        have = len(buffer)
        buffer.extend(bytes(min(size, 2 * have) - have))
        return len(buffer) - have

    def return_buffer(self, buffer: bytearray) -> None:
        """Keep the memory of a frame for the next one, if it has the usual size."""
        if len(buffer) == POOLED_BUFFER_BYTES and len(self._spare) < POOLED_BUFFERS_MAX:
            self._spare.append(buffer)


def _address_of(transport: Transport) -> str:
    return transport.peer.rpartition(":")[0]
