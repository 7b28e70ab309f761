"""The TLS settings of a listener, made of its keys ``ssl.*``. Source: ``SslFactory``, ``DefaultSslEngineFactory``."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.credentials.stores import StoreError, load_key_store, load_trust_store
from oncelog.broker.credentials.tls_options import set_versions, trust
from oncelog.broker.seams.tls import load_certificate, new_server_context
from oncelog.broker.security.tls.principal import PrincipalMapper, distinguished_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cryptography.x509 import Certificate

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerTls(NamedTuple):
    """The TLS context of a listener, and the rules that name its peers after the handshake."""

    context: ssl.SSLContext
    mapper: PrincipalMapper
    certificate: Certificate
    """The broker's own."""

    def principal(self, peer_certificate: bytes | None) -> str | None:
        """Return the name of a peer by its certificate (DER), None without one. Raises NoMatchingRule."""
        if peer_certificate is None:
            return None
        from cryptography.x509 import load_der_x509_certificate

        name = distinguished_name(load_der_x509_certificate(peer_certificate).subject)
        return self.mapper.name(name)

    def wrong_period(self, now: float) -> str | None:
        """Return the broker's certificate with its period, in words, if it is not valid at ``now`` (seconds since
        1970).
        """
        first, last = self.certificate.not_valid_before_utc, self.certificate.not_valid_after_utc
        if first.timestamp() <= now <= last.timestamp():
            return None
        return f"{distinguished_name(self.certificate.subject)}, which is valid from {first} to {last}"


def listener_tls(values: Mapping[str, str | None], read_file: Callable[[str], bytes]) -> ListenerTls:
    """Return the TLS settings of a listener. ``values``: its keys. Raises StoreError, which names the key or file."""
    store = load_key_store(values, read_file)
    if store is None:
        raise StoreError("ssl.keystore.location is missing: a TLS listener needs a key and a certificate")
    trusted = load_trust_store(values, read_file)
    context = new_server_context()
    try:
        load_certificate(context, store.key, store.chain)
    except (OSError, ValueError) as error:
        raise StoreError(f"the key store cannot be used: {error}") from None
    set_versions(context, values)
    _check_suites(values)
    client_auth = values.get("ssl.client.auth") or "none"
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        trust(context, trusted, ssl.Purpose.CLIENT_AUTH)
    try:
        mapper = PrincipalMapper(values.get("ssl.principal.mapping.rules") or "DEFAULT")
    except ValueError as error:
        raise StoreError(f"ssl.principal.mapping.rules: {error}") from None
    return ListenerTls(context, mapper, store.certificate)


def _check_suites(values: Mapping[str, str | None]) -> None:
    """Raise StoreError for suites that no client could agree on: Python's ssl gives a server no parameters for them."""
    named = [suite.strip() for suite in (values.get("ssl.cipher.suites") or "").split(",")]
    unusable = [suite for suite in named if suite.startswith("TLS_DHE_")]
    if unusable:
        raise StoreError(
            f"ssl.cipher.suites: a server in Python has no Diffie-Hellman parameters for {', '.join(unusable)}; "
            "TLS_ECDHE_… needs none"
        )


def incompatibility(
    old: Certificate, new: Certificate, *, allow_dn_changes: bool, allow_san_changes: bool
) -> str | None:
    """Return why a broker may not replace one certificate by another, or None."""
    names = distinguished_name(old.subject), distinguished_name(new.subject)
    if not allow_dn_changes and names[0].lower() != names[1].lower():
        return f"Keystore DistinguishedName does not match: existing={names[0]}, new={names[1]}"
    if not allow_san_changes:
        missing = _alternative_names(old) - _alternative_names(new)
        if missing:
            return f"Keystore SubjectAltNames do not match: the new certificate lacks {', '.join(sorted(missing))}"
    return None


def _alternative_names(certificate: Certificate) -> set[str]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in extension.value}
