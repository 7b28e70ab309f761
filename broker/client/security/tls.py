"""TLS for clients: a context made of Kafka's keys, and what a failed handshake means. Source: ``SslFactory``."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials.client_tls import ENDPOINT_KEY, client_tls
from oncelog.broker.credentials.stores import StoreError


def client_context(values: Mapping[str, str | None], read_file: Callable[[str], bytes]) -> ssl.SSLContext:
    """Return the TLS context for the keys ``ssl.*`` of a client. Raises ConfigError, which names key or file."""
    try:
        return client_tls(values, read_file)
    except StoreError as error:
        raise ConfigError(str(error)) from None


def tls_failure(peer: str, error: ssl.SSLError) -> AuthenticationError:
    """Return the error that says what a failed handshake, or an alert after it, means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"the broker's certificate is refused: {error.verify_message.rstrip('.')}"
        hint = _HINTS.get(error.verify_code, "")
    else:
        why = (error.reason or error.strerror or "it failed").lower().replace("_", " ")
        hint = ""
        if error.reason == "WRONG_VERSION_NUMBER":
            hint = "this port does not speak TLS"
        elif isinstance(error, ssl.SSLEOFError):
            why, hint = "the broker closed the connection", "perhaps this port does not speak TLS"
        elif "ALERT" in (error.reason or ""):
            why = f"the broker says: {why.partition('alert ')[2] or why}"
            if "CERTIFICATE" in (error.reason or "") or "UNKNOWN_CA" in (error.reason or ""):
                hint = "it refuses the certificate of ssl.keystore.*, or wants one"
    return AuthenticationError(None, f"{peer}: TLS handshake: {why}{f' ({hint})' if hint else ''}")


_HINTS = {
    18: "ssl.truststore.* must name it or its authority",
    19: "ssl.truststore.* must name its authority",
    20: "ssl.truststore.* must name its authority",
    62: ENDPOINT_KEY,
    64: ENDPOINT_KEY,
}
"""By OpenSSL's code (``X509_V_ERR_…``): what the user may look at."""
