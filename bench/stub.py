"""A server that answers at once and keeps nothing: how fast are the clients alone?

    python -m bench.stub        prints the port of 127.0.0.1 it listens on

No server for the same clients on the same machine can be quicker than one that does nothing, so what is measured with
this one is the most that can be measured with any. For that it must cost next to nothing itself: one thread, plain
sockets, answers made before (`bench.canned`), and a Produce request's records are thrown away in the kernel (to
receive from a TCP socket with MSG_TRUNC does not copy). It believes its clients: one that stops in the middle of a
small request keeps all others waiting.
"""

import os
import select
import socket
import struct
import time

from bench.canned import FETCH, PRODUCE, Broker, Buffer, ProduceHead, ProduceTemplate, batch_at

READ_BYTES = 64 << 10
SIZE_BYTES = 4
PARTS_MAX = 8  # of an answer, to be sent as they are
SCRATCH_BYTES = 1 << 20
HEAD_BYTES = 1 << 10  # more than a Produce request has before its records, and their batch's header
KEPT_REQUESTS = 8  # of each connection: one of their batches is what consumers get
ALIVE_S = 5.0  # how often it looks whether whoever started it is still there

scratch = memoryview(bytearray(SCRATCH_BYTES + HEAD_BYTES))


class Parked:
    """A Fetch that waits."""

    def __init__(self, request: object, version: int, correlation_id: int, deadline: float) -> None:
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.deadline = deadline


class Connection:
    def __init__(self, stub: "Stub", connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.parked: Parked | None = None
        self._stub = stub
        self._templates: dict[bytes, ProduceTemplate] = {}
        self._head_end = 0
        self._produced = 0
        self._left = 0  # of a Produce request's records: to throw away
        self._owed = b""  # and what is answered then

    def readable(self) -> bool:
        """Take what has come; whether the client is still there."""
        if not self._left:
            size = self.socket.recv_into(scratch, READ_BYTES, socket.MSG_DONTWAIT)
            if size:
                self._requests(size)
            return size > 0
        flags = socket.MSG_DONTWAIT | socket.MSG_TRUNC
        size = self.socket.recv_into(scratch, min(self._left, SCRATCH_BYTES), flags)
        self._left -= size
        if size and not self._left:
            self._answered([self._owed])
        return size > 0

    def _answered(self, answers: "list[Buffer]") -> None:
        if self._stub.parked:
            self._stub.wake()  # a consumer's record comes before its producer's answer, as with ours
        self.send(answers)

    def send(self, parts: "list[Buffer]") -> None:
        if len(parts) == 1:
            self.socket.sendall(parts[0])
            return
        if len(parts) > PARTS_MAX:
            parts = [b"".join(parts)]
        sent, whole = self.socket.sendmsg(parts), sum(map(len, parts))
        if sent < whole:
            self.socket.sendall(b"".join(parts)[sent:])

    def _requests(self, end: int) -> None:
        """All requests in the first `end` bytes of the scratch buffer, and the rest of the last of them."""
        at, answers = 0, list[Buffer]()
        while at < end:
            if end - at < SIZE_BYTES:
                end += self._more(end, SIZE_BYTES - (end - at))
            start = at + SIZE_BYTES
            stop = start + int.from_bytes(scratch[at:start], "big")
            if end < stop and end - at < HEAD_BYTES:
                end += self._more(end, min(stop, at + HEAD_BYTES) - end)
            frame: Buffer = scratch[start : min(stop, end)]
            key = int.from_bytes(frame[:2], "big")
            if end < stop and key == PRODUCE and self._produced >= KEPT_REQUESTS:
                self._left, self._owed = stop - end, self._produce(frame)
            else:
                if end < stop:
                    frame = bytes(frame) + self.socket.recv(stop - end, socket.MSG_WAITALL)
                answers += self._answer(key, frame)
            at = stop
        if answers:
            self._answered(answers)

    def _more(self, end: int, size: int) -> int:
        if self.socket.recv_into(scratch[end:], size, socket.MSG_WAITALL) < size:
            raise ConnectionError("it ended in the middle of a request")
        return size

    def _answer(self, key: int, frame: Buffer) -> "list[Buffer]":
        if key == PRODUCE:
            return [self._produce(frame)]
        if key != FETCH:
            return [self._stub.broker.answer(frame)]
        request, version, correlation_id = self._stub.broker.read(bytes(frame))
        parts = self._stub.broker.fetch(request, version, correlation_id, waited=False)
        if not parts:
            deadline = time.monotonic() + request.max_wait_ms / 1000
            self.parked = Parked(request, version, correlation_id, deadline)
            self._stub.parked.append(self)
        return parts

    def _produce(self, frame: Buffer) -> bytes:
        """The answer to a Produce request, of which the records after the batch's header may be missing."""
        template = self._templates.get(bytes(frame[8 : self._head_end]))
        if template is None:
            head = ProduceHead(frame)
            template = self._stub.broker.produce_template(head)
            self._head_end = head.end
            self._templates[bytes(frame[8 : head.end])] = template
        correlation_id = int.from_bytes(frame[4:8], "big")
        batch = batch_at(frame, self._head_end, frame[3])
        if self._produced < KEPT_REQUESTS:
            self._produced += 1
            (size,) = struct.unpack_from(">i", frame, batch + 8)
            template.partition.keep(frame[batch : batch + 12 + size])
        return template.answer(correlation_id, int.from_bytes(frame[batch + 57 : batch + 61], "big"))


class Stub:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.port = self._listener.getsockname()[1]
        self.broker = Broker(self.port)
        self.parked: list[Connection] = []
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}

    def run(self) -> None:
        """Until the process that started it has ended."""
        parent = os.getppid()
        while True:
            now = time.monotonic() if self.parked else 0.0
            deadlines = [one.parked.deadline - now for one in self.parked if one.parked is not None]
            ready = self._poll.poll(max(0.0, min([ALIVE_S, *deadlines])))
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
                self.wake(time.monotonic())

    def _serve(self, connection: Connection) -> None:
        try:
            if connection.readable():
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        del self._connections[connection.socket.fileno()]
        if connection in self.parked:
            self.parked.remove(connection)
        connection.socket.close()

    def wake(self, now: float = 0.0) -> None:
        """Answer the Fetches whose records are there, or whose time is over."""
        for one in tuple(self.parked):
            parked = one.parked
            assert parked is not None
            waited = now >= parked.deadline
            parts = self.broker.fetch(parked.request, parked.version, parked.correlation_id, waited=waited)
            if parts:
                self.parked.remove(one)
                one.parked = None
                one.send(parts)


def main() -> None:
    stub = Stub()
    print(f"127.0.0.1:{stub.port}", flush=True)
    stub.run()


if __name__ == "__main__":
    main()
