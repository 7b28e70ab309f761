"""`Certificates`: the certificates of a broker with TLS, and of its clients. It needs the extra ``security``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from oncelog.broker.control.errors import InvalidArgumentError, UnsupportedError
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.extras import install_command

if TYPE_CHECKING:
    from oncelog.broker.security.tls.authority import Certificate, DevelopmentAuthority

DAY = timedelta(days=1)
ELSEWHERE = "elsewhere.example"
"""The host in the broker's certificate with ``tls="other_host"``."""
BrokerCertificate: TypeAlias = Literal["expired", "of_a_stranger", "other_host"]
"""The certificates of a broker that clients refuse."""


class Certificates:
    """An authority of its own for each broker. ``tls``: True, or the certificate that the broker has.

    Raises InvalidArgumentError; UnsupportedError without the extra.
    """

    def __init__(self, tls: bool | BrokerCertificate) -> None:
        if tls not in (True, *get_args(BrokerCertificate)):
            words = ", ".join(map(repr, get_args(BrokerCertificate)))
            raise InvalidArgumentError(f"tls={tls!r}: expected True, False or one of {words}")
        try:
            from oncelog.broker.security.tls.authority import DevelopmentAuthority, Validity, broker_config
        except ModuleNotFoundError as error:
            raise UnsupportedError(f"tls= needs {error.name}: {install_command('security')}") from None
        self._tls = tls
        self._new_authority = DevelopmentAuthority
        self._broker_config = broker_config
        self._authority = DevelopmentAuthority(real_time.now_ms())
        begin = self._authority.usual.begin
        self._over = Validity(begin - DAY, begin)
        self._stranger: DevelopmentAuthority | None = None

    @property
    def authority_pem(self) -> bytes:
        """The certificate of the authority."""
        return self._authority.pem

    def broker_config(self) -> dict[str, str]:
        """Return the keys of the broker."""
        authority = self._signing(of_a_stranger=self._tls == "of_a_stranger")
        names = {"names": [ELSEWHERE]} if self._tls == "other_host" else {}
        server = authority.server(**names, validity=self._over if self._tls == "expired" else None)
        return self._broker_config(server, self.authority_pem)

    def client(self, name: str, *, expired: bool, of_a_stranger: bool) -> Certificate:
        """Return a certificate for a client."""
        return self._signing(of_a_stranger=of_a_stranger).client(name, self._over if expired else None)

    def _signing(self, *, of_a_stranger: bool) -> DevelopmentAuthority:
        if not of_a_stranger:
            return self._authority
        if self._stranger is None:
            self._stranger = self._new_authority(real_time.now_ms())
        return self._stranger
