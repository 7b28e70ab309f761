"""The log-in of ``--kafka-command-config`` as `ClientEndpoint`, from which the settings of each client are made."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.broker.client.security.client_security import PROTOCOLS
from oncelog.broker.credentials import jaas
from oncelog.broker.credentials.client_tls import ENDPOINT_KEY
from oncelog.broker.credentials.scram import TOKEN_AUTH
from oncelog.broker.credentials.stores import load_key_store, load_trust_store
from oncelog.broker.embedded.client_settings import ClientEndpoint
from oncelog.broker.seams.tls import read_file

INSTEAD = "--kafka-through-proxy gives clients an address that asks for nothing"


class NotCarriedError(Exception):
    """`client_config` has no words for what the file asks for."""


def endpoint_of(bootstrap_servers: str, values: Mapping[str, str]) -> ClientEndpoint:
    """Return the endpoint for clients with these keys, which have been checked. Raises NotCarriedError."""
    protocol = (values.get("security.protocol") or PROTOCOLS[0]).strip().upper()
    mechanism = values.get("sasl.mechanism", "").strip() if protocol.startswith("SASL") else ""
    user = password = None
    if mechanism == jaas.OAUTHBEARER:
        raise NotCarriedError(f"client_config() has no settings for sasl.mechanism=OAUTHBEARER: {INSTEAD}")
    if mechanism:
        options = jaas.options_of(mechanism, values["sasl.jaas.config"])
        user, password = options["username"], options["password"]
        if options.get(TOKEN_AUTH, "").strip().lower() == "true":
            raise NotCarriedError(f"client_config() has no settings for delegation tokens: {INSTEAD}")
    authority = certificate = None
    if protocol.endswith("SSL"):
        if not values.get(ENDPOINT_KEY, "https").strip():
            raise NotCarriedError(f"client_config() has no settings for {ENDPOINT_KEY}=: {INSTEAD}")
        trusted = load_trust_store(values, read_file)
        if trusted is not None:
            from cryptography.hazmat.primitives.serialization import Encoding

            authority = b"".join(one.public_bytes(Encoding.PEM) for one in trusted)
        store = load_key_store(values, read_file)
        if store is not None:
            from oncelog.broker.security.tls.authority import Certificate  # needs an extra

            certificate = Certificate(store.key, store.chain)
    return ClientEndpoint(
        bootstrap_servers.split(",")[0], protocol, mechanism, user, password, authority, certificate
    )
