"""The broker dies while a record goes to the dead-letter queue: afterwards both targets' queues have the same records.

Kafka's broker sends itself a Produce by its advertised address, where a forwarder holds the request or the response.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import struct
import threading
from abc import ABC, abstractmethod
from typing import Any, Self

import pytest

import oncelog
from compat_tests.differential import Session
from compat_tests.share.dead_letter_queues import queue_of, wait_until_done, with_queue
from compat_tests.share.readers import VERSION, Reader, batches
from oncelog.wire.framing import encode_frame
from tests.common import facts
from tests.common.batches import batch
from tests.common.definitions import api_key
from tests.common.frames import address, receive_frame
from tests.common.process import free_ports
from tests.common.real_kafka import RealKafka
from tests.common.recorded.recorder import Recorder

pytestmark = [
    pytest.mark.slow,
    facts.needs(facts.HAS_DEAD_LETTER_QUEUES, "dead-letter queues"),
]

PATIENCE_S = 60
ACCEPT, REJECT = [1], [3]
BEFORE, AFTER = "before append", "after append"
COUNTS = {BEFORE: 3, AFTER: 6}
"""The records in the queue after the death, of a batch of three."""


class Target(ABC):
    """A broker that dies before or after its next write to the queue."""

    bootstrap: str

    @abstractmethod
    def die_at(self, point: str, queue: str) -> None:
        """Let it die there, once."""

    @abstractmethod
    def start_again(self) -> None:
        """Wait until it is dead, and start it."""


class OurTarget(Target):
    def __init__(self, kafka: oncelog.Broker) -> None:
        self._kafka = kafka
        self.bootstrap = kafka.bootstrap_servers

    def die_at(self, point: str, queue: str) -> None:
        self._rule = self._kafka.faults.crash_at(point, topic=queue)

    def start_again(self) -> None:
        self._rule.wait_fired(timeout=PATIENCE_S)
        self._kafka.start()


class Forwarder:
    """Forwards the connections to its port; holds a Produce, or the response to it, as `hold_at` says."""

    def __init__(self, port: int) -> None:
        self.upstream = ""
        self.hold_at: str | None = None
        self.holds = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(address(self.upstream))
            except OSError:
                return
            self._sockets += [client, broker]
            is_held = threading.Event()
            for work in (self._forward_requests, self._forward_responses):
                threading.Thread(target=work, args=(client, broker, is_held), daemon=True).start()

    def _forward_requests(
        self, client: socket.socket, broker: socket.socket, is_held: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while frame := receive_frame(client):
                if struct.unpack_from(">h", frame) == (api_key("Produce"),):
                    if self.hold_at == BEFORE:
                        self.holds.set()
                        return
                    if self.hold_at == AFTER:
                        is_held.set()
                broker.sendall(encode_frame(frame))
            broker.shutdown(socket.SHUT_RDWR)

    def _forward_responses(
        self, client: socket.socket, broker: socket.socket, is_held: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while frame := receive_frame(broker):
                if is_held.is_set():
                    self.holds.set()
                    return
                client.sendall(encode_frame(frame))
            client.shutdown(socket.SHUT_RDWR)


class KafkasTarget(Target):
    def __init__(self, kafka: RealKafka, forwarder: Forwarder) -> None:
        self._kafka = kafka
        self._forwarder = forwarder
        self.bootstrap = forwarder.upstream = kafka.bootstrap

    def die_at(self, point: str, queue: str) -> None:
        self._forwarder.holds.clear()
        self._forwarder.hold_at = point

    def start_again(self) -> None:
        assert self._forwarder.holds.wait(PATIENCE_S)
        self._kafka.kill()
        self._forwarder.hold_at = None
        self._kafka.start()


def records_of_queue(target: Target, point: str, count: int) -> list[Any]:
    """A batch is rejected, the broker dies, and its successor ends the work. Returns the queue's records.

    Kafka would send the records of a batch that is partly rejected one by one.
    """
    session, name = Session(target.bootstrap), point.partition(" ")[0]
    topic_id, queue = with_queue(session, name, 3, errors_deadletterqueue_copy_record_enable="true")
    reader = Reader(session, topic_id, "one", name)
    assert reader.begin() == [(0, 2, 1)]
    target.die_at(point, queue)
    rows = [
        {"partition_index": 0, "acknowledgement_batches": batches([(0, 2, REJECT)])},
    ]
    body = {
        "group_id": name, "member_id": "one", "share_session_epoch": reader.epoch, "is_renew_ack": False,
        "topics": [{"topic_id": topic_id, "partitions": rows}],
    }  # fmt: skip
    reader.connection.send("ShareAcknowledge", VERSION, body)
    target.start_again()
    session.end()
    session = Session(target.bootstrap)
    session.wait_for_leaders(name, 1)
    assert session.produce(name, batch(1))["error_code"] == 0
    other = Reader(session, topic_id, "other", name)
    assert other.begin() == [(3, 3, 1)]
    other.say((3, 3, ACCEPT))
    wait_until_done(session, name)
    found = queue_of(session, queue, count)
    session.end()
    return found


def test_no_record_is_lost(answers: Recorder, tmp_path: pathlib.Path) -> None:
    """After the write and before its confirmation each record is there twice."""

    def observe(name: str) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            if name == "oncelog":
                ours = stack.enter_context(oncelog.Broker(data_dir=tmp_path / "data"))
                target: Target = OurTarget(ours)
            else:
                [port] = free_ports(1)
                kafka = RealKafka({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
                forwarder = stack.enter_context(Forwarder(port))
                target = KafkasTarget(stack.enter_context(kafka), forwarder)
            return {point: records_of_queue(target, point, count) for point, count in COUNTS.items()}

    found = answers.both(observe)
    assert {point: len(rows) for point, rows in found["oncelog"].items()} == COUNTS
    assert found["kafka"] == found["oncelog"]
