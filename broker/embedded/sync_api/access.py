# Made by .ci/unasync.py from async_api/access.py: edit that one.
"""`ClientAccess`: settings and certificates for clients, and the clients that were turned away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from oncelog.broker.control.errors import InvalidArgumentError, OncelogError
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Literal

    from oncelog.broker.control.options import BrokerOptions
    from oncelog.broker.control.request_types import FailedLogin
    from oncelog.broker.embedded.carrier import Calls
    from oncelog.broker.embedded.certificates import Certificates
    from oncelog.broker.embedded.tokens import Token, TokenIssuer
    from oncelog.broker.security.tls.authority import Certificate


class ClientAccess:
    """The part of `Facade` for TLS and log-ins: settings, certificates and tokens for clients, and failed
    log-ins.
    """

    _kind: ClassVar[str]

    _options: BrokerOptions
    _certificates: Certificates | None
    _tokens: TokenIssuer | None
    _calls: Calls | None

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
        token: str | Token | Callable[[], Token] | None = None,
        token_file: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """Return the settings of a client for the broker's first listener: address, TLS and log-in.

        client: ``confluent-kafka`` (or ``librdkafka``, ``kcat``), ``kafka-python``, ``aiokafka``, ``java`` or
            ``kafkajs``. The keys are that client's.
        user: one of ``users``, who logs in by ``mechanism``: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        certificate: the client's own: a name, or a result of `certificate`.
        token: of a broker with ``oauth``: a name, for which each log-in has a new token, or a result of `token`, or a
            function that returns one. kafkajs wants a function in the place of this text.
        token_file: where to write the token for ``java``, which reads it from a file.
        Raises InvalidArgumentError; UnsupportedError if the client is needed and not installed.
        """
        from oncelog.broker.embedded.client_settings import client_endpoint, client_settings

        shown = self.certificate(certificate) if isinstance(certificate, str) else certificate
        authority = None if self._certificates is None else self._certificates.authority_pem
        endpoint = client_endpoint(
            self._options,
            self.bootstrap_servers,
            user,
            mechanism,
            authority,
            shown,
            self._token_source(token),
            token_file,
            has_tokens=self._tokens is not None,
        )
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

    def token(
        self,
        name: str,
        *,
        expired: bool = False,
        not_yet_valid: bool = False,
        audience: str | None = None,
        issuer: str | None = None,
        of_a_stranger: bool = False,
        unsigned: bool = False,
        key_id: str | None = None,
        lifetime: float = 3600,
        claims: Mapping[str, object] | None = None,
    ) -> Token:
        """Return a token for a log-in by OAUTHBEARER, as `client_config` takes it; ``str(token)`` is its text. The
        client's principal is ``User:name``.

        expired: it was valid until a day ago. not_yet_valid: it will be in a day.
        audience, issuer: not the ones that the broker expects.
        of_a_stranger: another key signs it, under the issuer's key id. unsigned: none does.
        key_id: one that the broker does not know.
        lifetime: for how many seconds it is valid, in the broker's time: a session ends with its token.
        claims: further ones, or others: ``{"scope": "orders"}``; None leaves one out: ``{"sub": None}``.
        Raises InvalidArgumentError, also without ``oauth``.
        """
        if self._tokens is None:
            raise InvalidArgumentError(f"token() is for a {self._kind} with oauth=True")
        broker_s, real_s = self._now_s()
        return self._tokens.token(
            self._options,
            name,
            broker_s,
            real_s,
            expired=expired,
            not_yet_valid=not_yet_valid,
            of_a_stranger=of_a_stranger,
            unsigned=unsigned,
            key_id=key_id,
            audience=audience,
            issuer=issuer,
            lifetime=lifetime,
            claims=claims,
        )

    def _token_source(self, token: str | Token | Callable[[], Token] | None) -> Callable[[], Token] | None:
        """Return a function that returns a token for a log-in. Raises InvalidArgumentError."""
        from oncelog.broker.embedded.tokens import Token

        if token is None:
            return None
        if self._tokens is None:
            raise InvalidArgumentError(f"token=: the {self._kind} was made without oauth=True")
        if isinstance(token, Token):
            return lambda: token
        if isinstance(token, str):
            if token.count(".") == 2 and token.startswith("eyJ"):
                raise InvalidArgumentError("token=: expected a name, or a result of token(), not its text")
            return lambda: self.token(token)
        if callable(token):
            return token
        raise InvalidArgumentError(f"token={token!r}: expected a name, or a result of token()")

    def _now_s(self) -> tuple[float, float]:
        """Return the broker's time and the real one (seconds since 1970). They are equal while the broker cannot be
        asked: a client may want a token at any time, in any thread.
        """
        real_s = real_time.now_ms() / 1000
        if self._calls is None:
            return real_s, real_s
        try:
            return self._calls.call("clock", {}).now_ms / 1000, real_s
        except OncelogError:
            return real_s, real_s

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
