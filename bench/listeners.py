"""The warm servers' listeners with TLS: their properties, and the clients' settings for them."""

import pathlib

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.librdkafka import QUIET
from tests.common.certificates import Authority
from tests.common.process import free_ports

MECHANISM = "SCRAM-SHA-256"
USER, PASSWORD = "bench", "bench-secret"
ITERATIONS = 4096
SCRAM_TIMEOUT_S = 30
PLAINTEXT, SSL, SASL_SSL = "PLAINTEXT", "SSL", "SASL_SSL"


class TlsListeners:
    """An SSL and a SASL_SSL listener on free ports, with a certificate (ECDSA, P-256) in `folder`."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority()
        server = authority.identity("server")
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(authority.pem)
        self._server = folder / "server.pem"
        self._server.write_bytes(server.key + server.chain)
        ssl, sasl_ssl = free_ports(2)
        self._addresses = {SSL: f"127.0.0.1:{ssl}", SASL_SSL: f"127.0.0.1:{sasl_ssl}"}

    def properties(self) -> dict[str, str]:
        names = (PLAINTEXT, SSL, SASL_SSL)
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            "listeners": ",".join(f"{name}://{address}" for name, address in self._addresses.items()),
            "listener.security.protocol.map": ",".join(
                [*(f"{name}:{name}" for name in names), "CONTROLLER:PLAINTEXT"]
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._server),
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": scram,
        }

    def address(self, listener: str) -> str:
        return self._addresses[listener]

    def client(self, listener: str) -> dict[str, str]:
        """librdkafka's settings, but for the log-in."""
        return {
            "bootstrap.servers": self._addresses[listener],
            "security.protocol": listener,
            "ssl.ca.location": str(self.ca),
        }


def create_user(bootstrap: str) -> None:
    """Create `USER` with its password, or set it again."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(SCRAM_TIMEOUT_S)
