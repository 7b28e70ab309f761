"""Random log-ins to a broker over TLS: ``python -m tests.security.login_fuzz_tls COUNT [SEED]``.

The sequences are those of `login_fuzz`, each on a connection of its own; some break the handshake, the TLS record or
the frame. What a peer may see tells who it is: each user may describe one topic. Nothing may be left in the broker.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import ssl
import struct
import sys
import time

import trio

import oncelog
from oncelog.broker.credentials.jaas import PLAIN
from oncelog.broker.credentials.scram import SCRAM_MECHANISMS
from oncelog.broker.net.connection import Connection
from oncelog.broker.security.sasl.login import SaslLogin
from oncelog.wire.framing import decode_response, encode_frame, encode_request
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.sasl_client import TIMEOUT_S, Closed, SaslClient
from tests.security.login_fuzz import FRAMES_MAX, USERS, Login

TOPICS = {f"of-{number}": user for number, user in enumerate(USERS)}
METADATA_VERSION = 9
CORRELATION_ID = 77
GONE_S = 60
KEPT = (Connection, SaslLogin, trio.lowlevel.Task)
"""What a connection leaves if it leaks."""


class RemoteLogin(Login):
    """One sequence against a broker. What it knows of the broker's state is a guess from the responses."""

    usual_mechanisms = (PLAIN, *SCRAM_MECHANISMS)  # the broker has these

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._expects_token = False
        self._name = ""
        self._proven: set[str] = set()

    @property
    def expects_token(self) -> bool:
        return self._expects_token

    @property
    def principal_name(self) -> str:
        return self._name

    def run_at(self, bootstrap: str, context: ssl.SSLContext) -> None:
        """Raises AssertionError if the peer gets in without proof, or gets no response."""
        try:
            if self.chance.random() < 0.08:
                self._break_handshake(bootstrap)
                return
            with SaslClient(bootstrap, context) as client:
                self._run(client)
        except TimeoutError:
            raise AssertionError("neither a response nor the connection's end") from None
        except (Closed, OSError):  # also ssl.SSLError: the broker has closed the connection
            pass

    def _run(self, client: SaslClient) -> None:
        for _ in range(self.chance.randint(1, FRAMES_MAX)):
            frame = self.frame()
            self._proven |= self.proven(frame)
            whole = encode_frame(frame)
            if self.chance.random() < 0.02:
                self._break_off(client, whole)
                return
            client.socket.sendall(whole)
            self.answer = client.receive()
            self._guess(frame)
            if self._name and self.chance.random() < 0.8:
                self._check_principal(client)
        self._check_principal(client)

    def _guess(self, frame: bytes) -> None:
        """Follow the broker's state by its response."""
        was_refused = self.answer[4:6] != b"\0\0"
        if not self._expects_token:
            self._expects_token = frame[:2] == b"\0\x11" and not was_refused
        elif self.mechanism == "PLAIN" or b"v=" in self.answer:
            self._expects_token = False
            if not was_refused or not self.answer:
                self._name = next(iter(self._proven), "")

    def _check_principal(self, client: SaslClient) -> None:
        """Ask for the topics that the peer may see. Raises Closed if it is not in."""
        client.socket.sendall(encode_request(MetadataRequest(None), METADATA_VERSION, CORRELATION_ID, "fuzz"))
        response = client.receive()
        assert struct.unpack_from(">i", response) == (CORRELATION_ID,), response
        seen = {
            TOPICS[topic.name or ""]
            for topic in decode_response(MetadataRequest, METADATA_VERSION, response)[1].topics
        }
        assert len(seen) == 1, seen
        assert seen <= self._proven, (seen, self._proven)
        self.completed = 1

    def _break_handshake(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as plain:
            garbage = self.chance.randbytes(self.chance.randrange(300))
            if self.chance.random() < 0.5:  # the beginning of a TLS record, or a whole one
                garbage = (
                    b"\x16\x03\x01" + struct.pack(">H", self.chance.choice((len(garbage), 0x3FFF))) + garbage
                )
            plain.sendall(garbage)
            if self.chance.random() < 0.5:
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(1000):
                    pass

    def _break_off(self, client: SaslClient, whole: bytes) -> None:
        """Send a part of the frame and go, or bytes that are no TLS record."""
        assert isinstance(client.socket, ssl.SSLSocket)
        client.socket.sendall(whole[: self.chance.randrange(len(whole))])
        if self.chance.random() < 0.5:
            number = client.socket.detach()
            with socket.socket(fileno=number) as plain:
                plain.sendall(self.chance.randbytes(50))


def _left(kinds: tuple[type, ...] = KEPT) -> dict[str, int]:
    gc.collect()
    things = gc.get_objects()
    left = {kind.__name__: sum(type(thing) is kind for thing in things) for kind in kinds}
    return {**left, "descriptors": len(os.listdir("/proc/self/fd"))}


def fuzz(count: int, seed: int) -> int:
    """Run so many sequences. Returns how many peers got in. Raises AssertionError, which names the seed."""
    acls = [oncelog.Acl(f"User:{user}", "Describe", topic=topic) for topic, user in TOPICS.items()]
    config = {"connection.failed.authentication.delay.ms": "0"}
    completed = 0
    with oncelog.Broker(
        topics=list(TOPICS), users=USERS, tls=True, acls=acls, config=config, requests_kept=0
    ) as kafka:
        settings = kafka.client_config(user="alice")
        context = ssl.create_default_context(cadata=settings["ssl.ca.pem"])
        bootstrap = kafka.bootstrap_servers

        def log_in() -> None:
            with SaslClient(bootstrap, context) as client:
                client.log_in("PLAIN", "alice", USERS["alice"])

        log_in()
        before = _left()
        for number in range(count):
            login = RemoteLogin(random.Random(f"{seed}-{number}"))
            try:
                login.run_at(bootstrap, context)
            except Exception as error:
                raise AssertionError(f"seed {seed}, sequence {number}: {error!r}") from error
            completed += login.completed
        deadline = time.monotonic() + GONE_S
        while any(left > before[name] for name, left in _left().items()):
            assert time.monotonic() < deadline, f"seed {seed}: before {before}, now {_left()}"
            log_in()  # the broker has turns for this and for what is left to do
        bugs = [line for line in kafka.log_lines if "internal error" in line]
        assert not bugs, f"seed {seed}: {bugs}"
    return completed


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    start = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(32)
    print(f"seed {start}: {wanted} sequences over TLS, {fuzz(wanted, start)} peers got in")
