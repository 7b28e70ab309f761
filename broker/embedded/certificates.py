"""`Certificates`: the certificates of a broker with TLS, and of its clients. It needs the extra ``security``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from oncelog.broker.control.errors import UnsupportedError
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from oncelog.broker.security.tls.authority import Certificate

DAY = timedelta(days=1)


class Certificates:
    """An authority of its own for each broker. Raises UnsupportedError without the extra."""

    def __init__(self) -> None:
        try:
            from oncelog.broker.security.tls.authority import DAYS, DevelopmentAuthority
        except ModuleNotFoundError as error:
            raise UnsupportedError(f"tls=True needs {error.name}: pip install 'oncelog[security]'") from None
        self._new_authority = DevelopmentAuthority
        self._valid_for = DAYS * DAY
        self._authority = DevelopmentAuthority(real_time.now_ms())
        self._stranger: DevelopmentAuthority | None = None

    @property
    def authority_pem(self) -> bytes:
        """The certificate of the authority."""
        return self._authority.pem

    def broker_config(self) -> dict[str, str]:
        """Return the keys of the broker."""
        server, authority = self._authority.server(), self.authority_pem.decode()
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": server.key.decode(),
            "ssl.keystore.certificate.chain": server.chain.decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority,
            "ssl.client.auth": "requested",
        }

    def client(self, name: str, *, expired: bool, of_a_stranger: bool) -> Certificate:
        """Return a certificate for a client."""
        authority = self._authority
        if of_a_stranger:
            if self._stranger is None:
                self._stranger = self._new_authority(real_time.now_ms())
            authority = self._stranger
        return authority.client(name, -DAY if expired else self._valid_for)
