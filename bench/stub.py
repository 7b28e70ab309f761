"""A server that responds at once and stores nothing, to measure how fast the clients alone are.

    python -m bench.stub        prints the address on which it listens

With the same clients on the same machine no server can be faster than one that does nothing, so its results are a
ceiling. It must cost next to nothing itself: it has one thread and plain sockets, its responses are prepared
(`bench.canned`), and the kernel discards the records of Produce requests (recv with MSG_TRUNC does not copy). It trusts
its clients: one that stops in the middle of a small request blocks all others.
"""

import os
import select
import socket
import struct
import time

from bench.canned import FETCH, PRODUCE, Broker, Buffer, ProduceHead, ProduceTemplate, batch_position

READ_BYTES = 64 << 10
SIZE_BYTES = 4
PARTS_MAX = 8  # of a response; more are joined before they are sent
SCRATCH_BYTES = 1 << 20
HEAD_BYTES = 1 << 10  # more than a Produce request up to the end of its batch's header
KEPT_REQUESTS = 8  # per connection, from whose batches the one for consumers is chosen
PARENT_CHECK_S = 5.0

scratch = memoryview(bytearray(SCRATCH_BYTES + HEAD_BYTES))


class DelayedFetch:
    """A Fetch that waits for records."""

    def __init__(self, request: object, version: int, correlation_id: int, deadline: float) -> None:
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.deadline = deadline


class Connection:
    """A client's connection; receives and sends without waiting, except inside a small request."""

    def __init__(self, stub: "Stub", connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.delayed: DelayedFetch | None = None
        self._stub = stub
        self._templates: dict[bytes, ProduceTemplate] = {}
        self._head_end = 0
        self._produced = 0
        self._left = 0  # bytes of a Produce request's records that are still to be discarded
        self._pending_response = b""  # which is sent after that

    def on_readable(self) -> bool:
        """Handle received bytes; False if the client has closed the connection."""
        if not self._left:
            size = self.socket.recv_into(scratch, READ_BYTES, socket.MSG_DONTWAIT)
            if size:
                self._handle_requests(size)
            return size > 0
        flags = socket.MSG_DONTWAIT | socket.MSG_TRUNC
        size = self.socket.recv_into(scratch, min(self._left, SCRATCH_BYTES), flags)
        self._left -= size
        if size and not self._left:
            self._send_responses([self._pending_response])
        return size > 0

    def _send_responses(self, responses: "list[Buffer]") -> None:
        if self._stub.delayed:
            self._stub.complete_fetches()  # the consumer gets a record before the producer's response, as with oncelog
        self.send(responses)

    def send(self, parts: "list[Buffer]") -> None:
        if len(parts) == 1:
            self.socket.sendall(parts[0])
            return
        if len(parts) > PARTS_MAX:
            parts = [b"".join(parts)]
        sent, whole = self.socket.sendmsg(parts), sum(map(len, parts))
        if sent < whole:
            self.socket.sendall(b"".join(parts)[sent:])

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
                    frame = bytes(frame) + self.socket.recv(stop - end, socket.MSG_WAITALL)
                responses += self._respond(key, frame)
            at = stop
        if responses:
            self._send_responses(responses)

    def _receive_more(self, end: int, size: int) -> int:
        if self.socket.recv_into(scratch[end:], size, socket.MSG_WAITALL) < size:
            raise ConnectionError("it ended in the middle of a request")
        return size

    def _respond(self, key: int, frame: Buffer) -> "list[Buffer]":
        if key == PRODUCE:
            return [self._produce(frame)]
        if key != FETCH:
            return [self._stub.broker.respond(frame)]
        request, version, correlation_id = self._stub.broker.read(bytes(frame))
        parts = self._stub.broker.fetch(request, version, correlation_id, waited=False)
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
            template = self._stub.broker.produce_template(head)
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
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.port = self._listener.getsockname()[1]
        self.broker = Broker(self.port)
        self.delayed: list[Connection] = []
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
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
                if descriptor == self._listener.fileno():
                    connected = self._listener.accept()[0]
                    self._connections[connected.fileno()] = Connection(self, connected)
                    self._poll.register(connected, select.EPOLLIN)
                else:
                    self._serve(self._connections[descriptor])
            if deadlines:
                self.complete_fetches(time.monotonic())

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
            parts = self.broker.fetch(delayed.request, delayed.version, delayed.correlation_id, waited=waited)
            if parts:
                self.delayed.remove(one)
                one.delayed = None
                one.send(parts)


def main() -> None:
    stub = Stub()
    print(f"127.0.0.1:{stub.port}", flush=True)
    stub.run()


if __name__ == "__main__":
    main()
