"""The TLS context of a client, made of Kafka's keys. Source: ``SslFactory``, ``DefaultSslEngineFactory``."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from oncelog.broker.credentials.stores import StoreError, load_key_store, load_trust_store
from oncelog.broker.credentials.tls_options import set_versions, trust
from oncelog.broker.seams.extras import install_command
from oncelog.broker.seams.tls import load_certificate, new_client_context

ENDPOINT_KEY = "ssl.endpoint.identification.algorithm"


def client_tls(values: Mapping[str, str | None], read_file: Callable[[str], bytes]) -> ssl.SSLContext:
    """Return the TLS context for the keys ``ssl.*`` of a client. Raises StoreError, which names key or file."""
    context = new_client_context()
    algorithm = values.get(ENDPOINT_KEY)
    algorithm = "https" if algorithm is None else algorithm.strip().lower()
    if algorithm not in ("", "https"):
        raise StoreError(f"{ENDPOINT_KEY}={algorithm}: expected https, or nothing for no check of host names")
    context.check_hostname = algorithm == "https"
    try:
        store = load_key_store(values, read_file)
        if store is not None:
            load_certificate(context, store.key, store.chain)
        trust(context, load_trust_store(values, read_file), ssl.Purpose.SERVER_AUTH)
        set_versions(context, values)
    except (OSError, ValueError) as error:
        raise StoreError(f"the key store cannot be used: {error}") from None
    except ModuleNotFoundError as error:
        raise StoreError(f"ssl.*: TLS needs {error.name}: {install_command('security')}") from None
    return context
