"""Listeners with TLS, as clients see them."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import oncelog
from tests.common.certificates import Authority, client_hello

AUTHORITY = Authority()
SERVER = AUTHORITY.identity("server")
CLIENT = AUTHORITY.identity("client")
STRANGER = Authority("strangers").identity("stranger")
EXPIRED = AUTHORITY.identity("expired", days=-1)

END = "-----END CERTIFICATE-----\n"

CONFIG = {
    "listeners": "SSL://127.0.0.1:0",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": SERVER.key.decode(),
    "ssl.keystore.certificate.chain": SERVER.chain.decode(),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": AUTHORITY.pem.decode(),
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem)
    for name, identity in (("client", CLIENT), ("stranger", STRANGER), ("expired", EXPIRED)):
        (tmp_path / f"{name}.pem").write_bytes(identity.key + identity.chain)
    return tmp_path


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"], config=CONFIG) as broker:
        yield broker


def shake_hands(kafka: oncelog.Broker, context: ssl.SSLContext) -> str | None:
    """The protocol version of a connection that was answered. Raises ssl.SSLError, OSError."""
    host, port = kafka.bootstrap_servers.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        secured.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff".replace(" ", "")))
        assert secured.recv(4)
        return secured.version()


def trusting(files: Path, shown: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files / "ca.pem"))
    if shown:
        context.load_cert_chain(files / f"{shown}.pem")
    return context


def test_records_go_both_ways(kafka: oncelog.Broker, files: Path) -> None:
    client = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(files / "ca.pem"),
    }
    values = [bytes([number % 256]) * 50_000 for number in range(100)]
    producer = Producer({**client, "linger.ms": 50, "message.max.bytes": 900_000})
    for value in values:
        producer.produce("t", value)
    assert producer.flush(60) == 0
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    got: list[bytes | None] = []
    while len(got) < len(values):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        got.append(message.value())
    consumer.close()
    assert got == values


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_enabled_protocols(version: str, files: Path) -> None:
    other = {"TLSv1.2": ssl.TLSVersion.TLSv1_3, "TLSv1.3": ssl.TLSVersion.TLSv1_2}[version]
    with oncelog.Broker(config={**CONFIG, "ssl.enabled.protocols": version}) as kafka:
        assert shake_hands(kafka, trusting(files)) == version
        context = trusting(files)
        context.minimum_version = context.maximum_version = other
        with pytest.raises(ssl.SSLError):
            shake_hands(kafka, context)


def test_cipher_suites(files: Path) -> None:
    config = {**CONFIG, "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    with oncelog.Broker(config=config) as kafka:
        assert shake_hands(kafka, trusting(files)) == "TLSv1.2"
        context = trusting(files)
        context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        with pytest.raises(ssl.SSLError):
            shake_hands(kafka, context)


@pytest.mark.parametrize(
    ("client_auth", "shown", "is_let_in"),
    [
        ("none", None, True),
        ("none", "stranger", True),
        ("requested", None, True),
        ("requested", "client", True),
        ("requested", "stranger", False),
        ("required", None, False),
        ("required", "client", True),
        ("required", "stranger", False),
        ("required", "expired", False),
    ],
)
def test_client_certificates(client_auth: str, shown: str | None, is_let_in: bool, files: Path) -> None:
    with oncelog.Broker(config={**CONFIG, "ssl.client.auth": client_auth}) as kafka:
        if is_let_in:
            assert shake_hands(kafka, trusting(files, shown)) == "TLSv1.3"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                shake_hands(kafka, trusting(files, shown))
            said = {
                None: "peer did not return a certificate (ssl.client.auth=required wants one of the client)",
                "stranger": "(ssl.truststore.*: its authority is not among them)",
                "expired": "the client's certificate is refused: certificate has expired",
            }[shown]
            assert said in kafka.wait_for_failed_login(step="TLS").reason


def test_why_a_client_could_not_shake_hands_is_told(kafka: oncelog.Broker, files: Path) -> None:
    host, port = kafka.bootstrap_servers.split(":")
    old = trusting(files)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384")
    for context, said in (
        (
            ssl.create_default_context(),
            "the client says: unknown ca (it refuses the broker's certificate: for its ",
        ),
        (old, "no shared cipher (no suite of ssl.cipher.suites suits both the client and the broker's key)"),
    ):
        with pytest.raises(ssl.SSLError):
            shake_hands(kafka, context)
        assert kafka.wait_for_failed_login(step="TLS").reason.startswith(f"TLS handshake: {said}")
        kafka.reset()
    for content, said in (
        (
            bytes.fromhex("0000000a00120000000000070000"),
            "wrong version number (the client does not speak TLS; ",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", "http request (this listener speaks Kafka's protocol over TLS)"),
        (b"", "unexpected eof while reading (the client closed the connection: "),
    ):
        with socket.create_connection((host, int(port)), timeout=60) as plain:
            plain.sendall(content)
            plain.shutdown(socket.SHUT_WR)
            assert kafka.wait_for_failed_login(step="TLS").reason.startswith(f"TLS handshake: {said}")
        kafka.reset()


def test_keys_of_one_listener(files: Path) -> None:
    own = {
        key.replace("ssl.", "listener.name.safe.ssl."): value for key, value in CONFIG.items() if "ssl" in key
    }
    config = {
        **own,
        "listeners": "SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SSL",
        "inter.broker.listener.name": "SAFE",
    }
    with oncelog.Broker(config=config) as kafka:
        assert shake_hands(kafka, trusting(files)) == "TLSv1.3"


def test_a_broker_with_an_expired_certificate_says_so(files: Path) -> None:
    config = {
        **CONFIG,
        "ssl.keystore.key": EXPIRED.key.decode(),
        "ssl.keystore.certificate.chain": EXPIRED.chain.decode(),
    }
    with oncelog.Broker(config=config) as kafka:
        said = "listener SSL: clients will refuse its certificate CN=expired,O=Tests, which is valid from "
        assert any(said in line for line in kafka.log_lines)
        with pytest.raises(ssl.SSLError):
            shake_hands(kafka, trusting(files))
        assert "the client says: certificate expired (it " in kafka.wait_for_failed_login().reason
    with oncelog.Broker(config=CONFIG) as kafka:
        assert not any("refuse its certificate" in line for line in kafka.log_lines)


def test_garbage_and_silence_harm_nobody(kafka: oncelog.Broker, files: Path) -> None:
    host, port = kafka.bootstrap_servers.split(":")
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(20)]
    for content in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), bytes.fromhex("0000000a00120000000000070000")):
        with socket.create_connection((host, int(port)), timeout=60) as plain:
            plain.sendall(content)
            with suppress(ConnectionResetError):
                while plain.recv(100):
                    pass
    assert shake_hands(kafka, trusting(files)) == "TLSv1.3"
    for one in silent:
        one.close()


def test_half_handshakes_harm_nobody(kafka: oncelog.Broker, files: Path) -> None:
    """Two hundred that have the broker sign, and then say nothing more."""
    host, port = kafka.bootstrap_servers.split(":")
    hello = client_hello()
    half = [socket.create_connection((host, int(port)), timeout=60) for _ in range(200)]
    for one in half:
        one.sendall(hello)
    for one in half:
        assert one.recv(1), "the broker's part of the handshake"
        assert one.fileno() >= 0
    assert shake_hands(kafka, trusting(files)) == "TLSv1.3"
    for one in half:
        one.close()
    assert shake_hands(kafka, trusting(files)) == "TLSv1.3"


@pytest.mark.parametrize("name", ["localhost", "evil.example", "x" * 63, None])
def test_the_name_that_a_client_asks_for_chooses_nothing(
    kafka: oncelog.Broker, files: Path, name: str | None
) -> None:
    """The server name (SNI) is of no use to a broker with one certificate: it shows that one."""
    context = trusting(files)
    context.check_hostname = False
    host, port = kafka.bootstrap_servers.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown == ssl.PEM_cert_to_DER_cert(SERVER.chain.decode().split(END)[0] + END)


def test_a_client_cannot_have_the_handshake_done_again(kafka: oncelog.Broker, files: Path) -> None:
    """A renegotiation of TLS 1.2 costs the broker a signature, and the client nothing. Python's clients have none."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "this test needs the command openssl"
    command = [openssl, "s_client", "-connect", kafka.bootstrap_servers, "-tls1_2"]
    done = subprocess.run(
        [*command, "-CAfile", str(files / "ca.pem")],
        input=b"R\n" * 3,
        capture_output=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert b"Verify return code: 0" in said
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said
    assert shake_hands(kafka, trusting(files)) == "TLSv1.3"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"ssl.keystore.key": None, "ssl.keystore.certificate.chain": None},
            "ssl.keystore.location is missing",
        ),
        ({"ssl.keystore.key": STRANGER.key.decode()}, "does not fit the private key"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: TLSv1.1 is not served"),
        ({"ssl.cipher.suites": "TLS_NO_SUCH"}, "ssl.cipher.suites: TLS_NO_SUCH is unknown"),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_256_CBC_SHA384"},
            "OpenSSL here does not have TLS_RSA_WITH_AES_256_CBC_SHA384",
        ),
        (
            {"ssl.cipher.suites": "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"},
            "no Diffie-Hellman parameters for TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",
        ),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "Python cannot choose among the suites of TLS 1.3"),
        ({"ssl.principal.mapping.rules": "nonsense"}, "Invalid rule: nonsense"),
    ],
)
def test_what_cannot_be_used_is_named(changed: dict[str, str | None], said: str) -> None:
    config = {key: value for key, value in {**CONFIG, **changed}.items() if value is not None}
    with pytest.raises(oncelog.OncelogError) as raised:
        oncelog.Broker(config=config).start()
    assert said in str(raised.value)
    assert "PRIVATE" not in str(raised.value).replace("PRIVATE KEY (PKCS", "")
