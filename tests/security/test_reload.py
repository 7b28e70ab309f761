"""Certificates that are replaced while the broker runs, by AlterConfigs as kafka-configs sends it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import oncelog
from tests.common.certificates import Authority, Identity

AUTHORITY = Authority()
FIRST = AUTHORITY.identity("server")
LOCATION = "listener.name.secure.ssl.keystore.location"


class SecuredBroker:
    """A broker with an open listener, to change its configuration, and one with TLS."""

    def __init__(self, folder: Path, **config: str) -> None:
        self.folder = folder
        (folder / "ca.pem").write_bytes(AUTHORITY.pem)
        self.broker = oncelog.Broker(
            config={
                "listeners": "OPEN://127.0.0.1:0,SECURE://127.0.0.1:0",
                "listener.security.protocol.map": "OPEN:PLAINTEXT,SECURE:SSL",
                "inter.broker.listener.name": "OPEN",
                "listener.name.secure.ssl.keystore.type": "PEM",
                LOCATION: self.write("first", FIRST),
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )

    def write(self, name: str, identity: Identity) -> str:
        path = self.folder / f"{name}.pem"
        path.write_bytes(identity.key + identity.chain)
        return str(path)

    def alter(self, name: str, value: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers.split(",")[0]})
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)

    def shown(self) -> int:
        """The serial number of the certificate that it shows."""
        host, port = self.broker.bootstrap_servers.split(",")[1].split(":")
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            certificate = secured.getpeercert()
            assert certificate is not None
            return int(str(certificate["serialNumber"]), 16)


def test_a_new_file_and_a_new_content_are_used_for_new_connections(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path)
    second, third = AUTHORITY.identity("server"), AUTHORITY.identity("server")
    with secured.broker as kafka:
        assert secured.shown() == FIRST.certificate.serial_number
        secured.alter(LOCATION, secured.write("second", second))
        assert secured.shown() == second.certificate.serial_number
        kafka.stop()
        kafka.start()
        assert secured.shown() == second.certificate.serial_number
        secured.alter(LOCATION, secured.write("second", third))
        assert secured.shown() == third.certificate.serial_number


def test_another_brokers_certificate_is_refused_unless_allowed(tmp_path: Path) -> None:
    other = AUTHORITY.identity("other")
    secured = SecuredBroker(tmp_path)
    with secured.broker:
        with pytest.raises(KafkaException, match="Keystore DistinguishedName does not match"):
            secured.alter(LOCATION, secured.write("other", other))
        assert secured.shown() == FIRST.certificate.serial_number
    allowed = SecuredBroker(tmp_path, ssl_allow_dn_changes="true")
    with allowed.broker:
        allowed.alter(LOCATION, allowed.write("other", other))
        assert allowed.shown() == other.certificate.serial_number


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (LOCATION, "/no/such/file", "cannot read /no/such/file"),
        ("ssl.keystore.location", "/x", "only per-listener using the listener prefix"),
        (
            "listener.name.secure.ssl.principal.mapping.rules",
            "DEFAULT",
            "Cannot update these configs dynamically",
        ),
        ("listener.name.secure.ssl.client.auth", "perhaps", "Invalid value perhaps"),
    ],
)
def test_what_is_refused_changes_nothing(tmp_path: Path, name: str, value: str, said: str) -> None:
    secured = SecuredBroker(tmp_path)
    with secured.broker:
        with pytest.raises(KafkaException, match=said):
            secured.alter(name, value)
        assert secured.shown() == FIRST.certificate.serial_number
