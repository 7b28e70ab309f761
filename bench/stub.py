"""A server that responds at once and stores nothing, to measure how fast the clients alone are.

    python -m bench.stub [CERTIFICATE ADDRESS]      prints the address on which it listens

With a PEM file (key and chain) it also listens at ADDRESS, with TLS.

With the same clients on the same machine no server can be faster than one that does nothing, so its results are a
ceiling. It must cost next to nothing itself: it has one thread and plain sockets, its responses are prepared
(`bench.canned`), and the kernel discards the records of Produce requests (recv with MSG_TRUNC does not copy). Over TLS
OpenSSL decrypts them into a few kilobytes, again and again. It trusts its clients: one that stops in the middle of a
small request blocks all others.
"""

import os
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from typing import Protocol

from bench.canned import FETCH, PRODUCE, Broker, Buffer, ProduceHead, ProduceTemplate, batch_position

READ_BYTES = 64 << 10
SIZE_BYTES = 4
PARTS_MAX = 8  # of a response; more are joined before they are sent
SCRATCH_BYTES = 1 << 20
HEAD_BYTES = 1 << 10  # more than a Produce request up to the end of its batch's header
KEPT_REQUESTS = 8  # per connection, from whose batches the one for consumers is chosen
PARENT_CHECK_S = 5.0
ENCRYPTED_BYTES = 64 << 10  # that one system call receives
RECORD_BYTES = 16 << 10  # of a TLS record at most

scratch = memoryview(bytearray(SCRATCH_BYTES + HEAD_BYTES))
encrypted = memoryview(bytearray(ENCRYPTED_BYTES))
discarded = memoryview(bytearray(RECORD_BYTES))


class DelayedFetch:
    """A Fetch that waits for records."""

    def __init__(self, request: object, version: int, correlation_id: int, deadline: float) -> None:
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.deadline = deadline


class Stream(Protocol):
    """A connection's bytes. Calls raise OSError when it is broken."""

    drained: bool
    """Whether nothing is left to receive without another event of the socket."""

    def receive(self, size: int) -> int:
        """Put up to `size` bytes into the scratch buffer, without waiting: raises BlockingIOError. 0: the end."""

    def receive_whole(self, buffer: memoryview) -> int:
        """Fill `buffer`, and wait for that; returns fewer bytes at the end."""

    def discard(self, size: int) -> int:
        """As `receive`, of bytes that nobody needs."""

    def send(self, parts: "list[Buffer]") -> None:
        """Send everything, and wait for that."""


class PlainStream:
    """See `Stream`."""

    drained = True

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def receive(self, size: int) -> int:
        return self._socket.recv_into(scratch, size, socket.MSG_DONTWAIT)

    def receive_whole(self, buffer: memoryview) -> int:
        return self._socket.recv_into(buffer, len(buffer), socket.MSG_WAITALL)

    def discard(self, size: int) -> int:
        flags = socket.MSG_DONTWAIT | socket.MSG_TRUNC
        return self._socket.recv_into(scratch, min(size, SCRATCH_BYTES), flags)

    def send(self, parts: "list[Buffer]") -> None:
        if len(parts) == 1:
            self._socket.sendall(parts[0])
            return
        if len(parts) > PARTS_MAX:
            parts = [b"".join(parts)]
        sent, whole = self._socket.sendmsg(parts), sum(map(len, parts))
        if sent < whole:
            self._socket.sendall(b"".join(parts)[sent:])


class TlsStream:
    """See `Stream`. OpenSSL reads and writes memory: on a socket it takes two system calls for each TLS record."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._decrypt: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]  # it counts
        self.drained = False  # what came with the end of the handshake
        self._shake_hands()

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._feed(0)
            else:
                self._flush()
                return

    def _feed(self, flags: int) -> None:
        count = self._socket.recv_into(encrypted, ENCRYPTED_BYTES, flags)
        if count:
            self._incoming.write(encrypted[:count])
        else:
            self._incoming.write_eof()
        self.drained = False

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())

    def receive(self, size: int) -> int:
        return self._read(scratch[:size], socket.MSG_DONTWAIT, whole=False)

    def receive_whole(self, buffer: memoryview) -> int:
        return self._read(buffer, 0, whole=True)

    def _read(self, buffer: memoryview, flags: int, *, whole: bool) -> int:
        have, size = 0, len(buffer)
        while have < size:
            if self.drained:
                self._feed(flags)
            try:
                count = self._decrypt(size - have, buffer[have:])
            except ssl.SSLWantReadError:
                self.drained = True
                if have and not whole:
                    break
            else:
                if not count:
                    break
                have += count
        return have

    def discard(self, size: int) -> int:
        if self.drained:
            self._feed(socket.MSG_DONTWAIT)
        left, decrypt = size, self._decrypt
        try:
            while left and (count := decrypt(left, discarded)):
                left -= count
        except ssl.SSLWantReadError:
            self.drained = True
            if left == size:
                raise BlockingIOError from None  # the TLS record is not complete
        return size - left

    def send(self, parts: "list[Buffer]") -> None:
        for part in parts:
            self._tls.write(part)
        self._flush()


class Connection:
    """A client's connection; receives and sends without waiting, except inside a small request."""

    def __init__(self, stub: "Stub", broker: Broker, connected: socket.socket, stream: Stream) -> None:
        self.socket = connected
        self.broker = broker
        self._stream = stream
        self.delayed: DelayedFetch | None = None
        self._stub = stub
        self._templates: dict[bytes, ProduceTemplate] = {}
        self._head_end = 0
        self._produced = 0
        self._left = 0  # bytes of a Produce request's records that are still to be discarded
        self._pending_response = b""  # which is sent after that

    def on_readable(self) -> bool:
        """Handle received bytes; False if the client has closed the connection."""
        while True:
            if self._left:
                size = self._stream.discard(self._left)
                self._left -= size
                if size and not self._left:
                    self._send_responses([self._pending_response])
            else:
                size = self._stream.receive(READ_BYTES)
                if size:
                    self._handle_requests(size)
            if not size or self._stream.drained:
                return size > 0

    def _send_responses(self, responses: "list[Buffer]") -> None:
        if self._stub.delayed:
            self._stub.complete_fetches()  # the consumer gets a record before the producer's response, as with oncelog
        self._stream.send(responses)

    def send(self, parts: "list[Buffer]") -> None:
        self._stream.send(parts)

    def _handle_requests(self, end: int) -> None:
        """Handle all requests in the first `end` bytes of the scratch buffer; receive the rest of the last one."""
        at, responses = 0, list[Buffer]()
        while at < end:
            if end - at < SIZE_BYTES:
                end += self._receive_more(end, SIZE_BYTES - (end - at))
            start = at + SIZE_BYTES
            stop = start + int.from_bytes(scratch[at:start], "big")
            if end < stop and end - at < HEAD_BYTES:
                end += self._receive_more(end, min(stop, at + HEAD_BYTES) - end)
            frame: Buffer = scratch[start : min(stop, end)]
            key = int.from_bytes(frame[:2], "big")
            if end < stop and key == PRODUCE and self._produced >= KEPT_REQUESTS:
                self._left, self._pending_response = stop - end, self._produce(frame)
            else:
                if end < stop:
                    rest = memoryview(bytearray(stop - end))
                    frame = bytes(frame) + rest[: self._stream.receive_whole(rest)]
                responses += self._respond(key, frame)
            at = stop
        if responses:
            self._send_responses(responses)

    def _receive_more(self, end: int, size: int) -> int:
        if self._stream.receive_whole(scratch[end : end + size]) < size:
            raise ConnectionError("it ended in the middle of a request")
        return size

    def _respond(self, key: int, frame: Buffer) -> "list[Buffer]":
        if key == PRODUCE:
            return [self._produce(frame)]
        if key != FETCH:
            return [self.broker.respond(frame)]
        request, version, correlation_id = self.broker.read(bytes(frame))
        parts = self.broker.fetch(request, version, correlation_id, waited=False)
        if not parts:
            deadline = time.monotonic() + request.max_wait_ms / 1000
            self.delayed = DelayedFetch(request, version, correlation_id, deadline)
            self._stub.delayed.append(self)
        return parts

    def _produce(self, frame: Buffer) -> bytes:
        """The response to a Produce request, which may be truncated after its batch's header."""
        template = self._templates.get(bytes(frame[8 : self._head_end]))
        if template is None:
            head = ProduceHead(frame)
            template = self.broker.produce_template(head)
            self._head_end = head.end
            self._templates[bytes(frame[8 : head.end])] = template
        correlation_id = int.from_bytes(frame[4:8], "big")
        batch = batch_position(frame, self._head_end, frame[3])
        if self._produced < KEPT_REQUESTS:
            self._produced += 1
            (size,) = struct.unpack_from(">i", frame, batch + 8)
            template.partition.keep(frame[batch : batch + 12 + size])
        return template.respond(correlation_id, int.from_bytes(frame[batch + 57 : batch + 61], "big"))


class Stub:
    """Listens on a free port, and with a certificate at an address with TLS, too."""

    def __init__(self, certificate: str = "", tls_address: str = "") -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.port = listener.getsockname()[1]
        self.delayed: list[Connection] = []
        plain = Broker(self.port)
        self._listeners: dict[int, tuple[socket.socket, Broker, ssl.SSLContext | None]] = {
            listener.fileno(): (listener, plain, None)
        }
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            host, _, port = tls_address.rpartition(":")
            listener = socket.create_server((host, int(port)), backlog=1000)
            self._listeners[listener.fileno()] = listener, Broker(int(port), plain), context
        self._poll = select.epoll()
        for descriptor in self._listeners:
            self._poll.register(descriptor, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}

    def run(self) -> None:
        """Serve until the parent process has exited."""
        parent = os.getppid()
        while True:
            now = time.monotonic() if self.delayed else 0.0
            deadlines = [one.delayed.deadline - now for one in self.delayed if one.delayed is not None]
            ready = self._poll.poll(max(0.0, min([PARENT_CHECK_S, *deadlines])))
            if not ready and os.getppid() != parent:
                return
            for descriptor, _ in ready:
                if descriptor in self._listeners:
                    self._accept(descriptor)
                else:
                    self._serve(self._connections[descriptor])
            if deadlines:
                self.complete_fetches(time.monotonic())

    def _accept(self, descriptor: int) -> None:
        listener, broker, context = self._listeners[descriptor]
        connected = listener.accept()[0]
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            stream = PlainStream(connected) if context is None else TlsStream(connected, context)
        except OSError:  # no handshake
            connected.close()
            return
        self._connections[connected.fileno()] = connection = Connection(self, broker, connected, stream)
        self._poll.register(connected, select.EPOLLIN)
        if not stream.drained:
            self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        try:
            if connection.on_readable():
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        del self._connections[connection.socket.fileno()]
        if connection in self.delayed:
            self.delayed.remove(connection)
        connection.socket.close()

    def complete_fetches(self, now: float = 0.0) -> None:
        """Complete the delayed fetches that have records now, or whose deadline has passed."""
        for one in tuple(self.delayed):
            delayed = one.delayed
            assert delayed is not None
            waited = now >= delayed.deadline
            parts = one.broker.fetch(delayed.request, delayed.version, delayed.correlation_id, waited=waited)
            if parts:
                self.delayed.remove(one)
                one.delayed = None
                one.send(parts)


def main() -> None:
    stub = Stub(*sys.argv[1:])
    print(f"127.0.0.1:{stub.port}", flush=True)
    stub.run()


if __name__ == "__main__":
    main()
