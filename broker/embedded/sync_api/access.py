# Made by .ci/unasync.py from async_api/access.py: edit that one.
"""`ClientAccess`: settings and certificates for clients, and the clients that were turned away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.control.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing import Literal

    from oncelog.broker.control.options import BrokerOptions
    from oncelog.broker.control.request_types import FailedLogin
    from oncelog.broker.embedded.certificates import Certificates
    from oncelog.broker.security.tls.authority import Certificate


class ClientAccess:
    """The part of `Facade` for TLS and log-ins: settings and certificates for clients, and failed log-ins."""

    _options: BrokerOptions
    _certificates: Certificates | None

    if TYPE_CHECKING:

        @property
        def bootstrap_servers(self) -> str:
            """The addresses of all listeners."""

        def _call(self, operation: str, **arguments: Any) -> Any:
            """Call an operation of the broker."""

    def client_config(
        self,
        client: str = "confluent-kafka",
        *,
        user: str | None = None,
        mechanism: str = "SCRAM-SHA-256",
        certificate: str | Certificate | None = None,
    ) -> dict[str, Any]:
        """Return the settings of a client for the broker's first listener: address, TLS and log-in.

        client: ``confluent-kafka`` (or ``librdkafka``, ``kcat``), ``kafka-python``, ``aiokafka``, ``java`` or
            ``kafkajs``. The keys are that client's.
        user: one of ``users``, who logs in by ``mechanism``: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        certificate: the client's own: a name, or a result of `certificate`.
        Raises InvalidArgumentError.
        """
        from oncelog.broker.embedded.client_settings import client_endpoint, client_settings

        shown = self.certificate(certificate) if isinstance(certificate, str) else certificate
        authority = None if self._certificates is None else self._certificates.authority_pem
        endpoint = client_endpoint(self._options, self.bootstrap_servers, user, mechanism, authority, shown)
        return client_settings(client, endpoint)

    def certificate(self, name: str, *, expired: bool = False, of_a_stranger: bool = False) -> Certificate:
        """Return a certificate for a client and its key. Its subject, and the client's principal in ACLs, is
        ``CN=name,O=oncelog development``.

        expired: it was valid until a day ago.
        of_a_stranger: an authority that the broker does not trust signs it.
        Raises InvalidArgumentError without ``tls``.
        """
        if self._certificates is None:
            raise InvalidArgumentError("certificate() is for a broker with tls=True")
        return self._certificates.client(name, expired=expired, of_a_stranger=of_a_stranger)

    def failed_logins(self, *, listener: str | None = None) -> list[FailedLogin]:
        """Return the latest clients that were turned away, the newest last: failed TLS handshakes and log-ins.

        listener: only those of the listener with that name. The broker keeps the last ``requests_kept``.
        """
        found: list[FailedLogin] = self._call("failed_logins", listener=listener)
        return found

    def wait_for_failed_login(
        self,
        *,
        listener: str | None = None,
        step: Literal["TLS", "SASL"] | None = None,
        after: FailedLogin | None = None,
        timeout: float = 10,
    ) -> FailedLogin:
        """Wait until a client is turned away; return the failure. One from before the call counts, too.

        step: only failed handshakes (``TLS``) or log-ins (``SASL``).
        after: only those that came later than this one.
        timeout: seconds of real time. WaitTimeoutError lists the other clients that were turned away.
        """
        failed: FailedLogin = self._call(
            "wait_for_failed_login",
            listener=listener,
            step=step,
            after=0 if after is None else after.number,
            timeout=timeout,
        )
        return failed
