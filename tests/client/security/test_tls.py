"""The client over TLS: whom it believes, what it shows, and what it says of a handshake that fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

import oncelog
from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.opening import open_connection
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.seams.transport import connect
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.certificates import Authority, Identity, pem_listener
from tests.harness.resetting_peer import resetting_peer

AUTHORITY, STRANGERS = Authority(), Authority("strangers")
SERVER = AUTHORITY.identity("server")
CLIENT = AUTHORITY.identity("client")
SECRET = "a secret"


def broker_config(server: Identity, **more: str) -> dict[str, str]:
    return pem_listener(server, AUTHORITY, **more)


def trusting(authority: Authority = AUTHORITY, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem.decode(),
        **{key.replace("_", "."): text for key, text in more.items()},
    }


def showing(identity: Identity) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key.decode(),
        "ssl.keystore.certificate.chain": identity.chain.decode(),
    }


def served(kafka: oncelog.Broker, values: dict[str, str], host: str = "127.0.0.1") -> str:
    """The principal by which a client with these settings is served. Raises KafkaError."""
    port = int(kafka.bootstrap_servers.rpartition(":")[2])

    async def main() -> None:
        async def to_loopback(_: str, port: int) -> object:
            return await connect("127.0.0.1", port)

        security = ClientSecurity(values)
        connection = await open_connection(to_loopback, host, port, security=security)  # type: ignore[arg-type]
        response = await connection.call(MetadataRequest([]))
        assert response.error_code == 0
        connection.close()

    trio.run(main)
    return kafka.requests("Metadata")[-1].principal


def refusal(kafka: oncelog.Broker, values: dict[str, str], host: str = "127.0.0.1") -> str:
    with pytest.raises(AuthenticationError) as caught:
        served(kafka, values, host)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(config=broker_config(SERVER, ssl_client_auth="requested")) as broker:
        yield broker


def test_a_broker_that_is_believed(kafka: oncelog.Broker) -> None:
    assert served(kafka, trusting()) == "User:ANONYMOUS"
    assert served(kafka, trusting(), "localhost") == "User:ANONYMOUS"


def test_a_certificate_that_the_client_shows(kafka: oncelog.Broker) -> None:
    assert served(kafka, {**trusting(), **showing(CLIENT)}) == "User:CN=client,O=Tests"


def test_key_stores_in_files(kafka: oncelog.Broker, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem)
    store = pkcs12.serialize_key_and_certificates(
        b"client",
        CLIENT.private_key,
        CLIENT.certificate,
        None,
        serialization.BestAvailableEncryption(SECRET.encode()),
    )
    (tmp_path / "client.p12").write_bytes(store)
    values = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "client.p12"),
        "ssl.keystore.password": SECRET,
    }
    assert served(kafka, values) == "User:CN=client,O=Tests"


def test_an_unknown_authority(kafka: oncelog.Broker) -> None:
    said = refusal(kafka, trusting(STRANGERS))
    assert "TLS handshake: the broker's certificate is refused: " in said
    assert "ssl.truststore.* must name its authority" in said


def test_another_host(kafka: oncelog.Broker) -> None:
    said = refusal(kafka, trusting(), "elsewhere.example")
    assert "Hostname mismatch, certificate is not valid for 'elsewhere.example'" in said
    assert "(ssl.endpoint.identification.algorithm)" in said
    assert served(kafka, trusting(ssl_endpoint_identification_algorithm=""), "elsewhere.example")


def test_a_name_that_cannot_be_a_hosts(kafka: oncelog.Broker) -> None:
    assert "is no name of a host" in refusal(kafka, trusting(), ".x")


def test_a_certificate_that_has_expired() -> None:
    with oncelog.Broker(config=broker_config(AUTHORITY.identity("old", days=-1))) as kafka:
        assert "the broker's certificate is refused: certificate has expired" in refusal(kafka, trusting())


def test_a_broker_that_wants_a_certificate() -> None:
    with oncelog.Broker(config=broker_config(SERVER, ssl_client_auth="required")) as kafka:
        assert served(kafka, {**trusting(), **showing(CLIENT)}) == "User:CN=client,O=Tests"
        for shown, why in (
            ({}, "certificate required"),
            (showing(STRANGERS.identity("x")), "unknown ca"),
            (showing(AUTHORITY.identity("x", days=-1)), "certificate expired"),
        ):
            said = refusal(kafka, {**trusting(), **shown})
            assert f"TLS handshake: the broker says: {why}" in said
            assert "ssl.keystore.*" in said


def test_versions_and_suites(kafka: oncelog.Broker) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    assert served(kafka, trusting(ssl_enabled_protocols="TLSv1.2", ssl_cipher_suites=suite))
    with oncelog.Broker(config=broker_config(SERVER, ssl_enabled_protocols="TLSv1.3")) as modern:
        said = refusal(modern, trusting(ssl_enabled_protocols="TLSv1.2"))
        assert "TLS handshake: the broker says: protocol version" in said


def test_a_broker_without_tls() -> None:
    with oncelog.Broker() as kafka:
        assert "TLS handshake: the broker closed the connection" in refusal(kafka, trusting())


def test_a_peer_that_speaks_no_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()

        async def main() -> None:
            await open_connection(connect, *server.getsockname(), security=ClientSecurity(trusting()))

        with pytest.raises(AuthenticationError, match=r"\(this port does not speak TLS\)"):
            trio.run(main)
        thread.join()


def test_a_peer_that_breaks_off() -> None:
    """As a broker without TLS does that has not read all of the handshake; it is no refusal, and may be tried again."""
    with resetting_peer() as address:

        async def main() -> None:
            await open_connection(connect, *address, security=ClientSecurity(trusting()))

        said = r"NETWORK_EXCEPTION: .*TLS handshake: .*\(perhaps this port does not speak TLS\)"
        with pytest.raises(KafkaError, match=said) as caught:
            trio.run(main)
        assert not isinstance(caught.value, AuthenticationError)


def test_a_peer_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def main() -> None:
            values = ClientSecurity(trusting())
            await open_connection(connect, *server.getsockname(), timeout_s=0.2, security=values)

        with pytest.raises(KafkaError, match="not connected within"):
            trio.run(main)


def test_a_client_without_tls_at_a_tls_listener(kafka: oncelog.Broker) -> None:
    with pytest.raises(KafkaError, match=r"\(perhaps it wants TLS: security.protocol\)$"):
        served(kafka, {})
