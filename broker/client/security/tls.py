"""TLS for clients: a context made of Kafka's keys, and what a failed handshake means. Source: ``SslFactory``."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials.stores import StoreError, load_key_store, load_trust_store
from oncelog.broker.credentials.tls_options import set_versions, trust
from oncelog.broker.seams.tls import load_certificate, new_client_context

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENDPOINT_KEY = "ssl.endpoint.identification.algorithm"


def client_context(values: Mapping[str, str | None], read_file: Callable[[str], bytes]) -> ssl.SSLContext:
    """Return the TLS context for the keys ``ssl.*`` of a client. Raises ConfigError, which names key or file."""
    context = new_client_context()
    algorithm = values.get(ENDPOINT_KEY)
    algorithm = "https" if algorithm is None else algorithm.strip().lower()
    if algorithm not in ("", "https"):
        raise ConfigError(
            f"{ENDPOINT_KEY}={algorithm}: expected https, or nothing for no check of host names"
        )
    context.check_hostname = algorithm == "https"
    try:
        store = load_key_store(values, read_file)
        if store is not None:
            load_certificate(context, store.key, store.chain)
        trust(context, load_trust_store(values, read_file), ssl.Purpose.SERVER_AUTH)
        set_versions(context, values)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the key store cannot be used: {error}") from None
    except ModuleNotFoundError as error:
        raise ConfigError(f"ssl.*: TLS needs {error.name}: pip install 'oncelog[security]'") from None
    return context


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
