"""The TLS settings of a listener, made of its keys ``ssl.*``. Source: ``SslFactory``, ``DefaultSslEngineFactory``."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.seams.tls import load_certificate, new_server_context
from oncelog.broker.security.tls.ciphers import TLS_1_2, TLS_1_3
from oncelog.broker.security.tls.principal import PrincipalMapper, distinguished_name
from oncelog.broker.security.tls.stores import StoreError, load_key_store, load_trust_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cryptography.x509 import Certificate

PROTOCOLS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerTls(NamedTuple):
    """What a TLS listener needs for a handshake, and to name its peer afterwards."""

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
    _set_versions(context, _items(values, "ssl.enabled.protocols"), _items(values, "ssl.cipher.suites"))
    client_auth = values.get("ssl.client.auth") or "none"
    context.verify_mode = CLIENT_AUTH[client_auth]
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # any trusted certificate is an anchor, as in Java
    if context.verify_mode != ssl.CERT_NONE:
        _trust(context, trusted)
    try:
        mapper = PrincipalMapper(values.get("ssl.principal.mapping.rules") or "DEFAULT")
    except ValueError as error:
        raise StoreError(f"ssl.principal.mapping.rules: {error}") from None
    return ListenerTls(context, mapper, store.certificate)


def _items(values: Mapping[str, str | None], key: str) -> list[str]:
    return [item.strip() for item in (values.get(key) or "").split(",") if item.strip()]


def _trust(context: ssl.SSLContext, trusted: list[Certificate] | None) -> None:
    if trusted is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    from cryptography.hazmat.primitives.serialization import Encoding

    for certificate in trusted:
        context.load_verify_locations(cadata=certificate.public_bytes(Encoding.DER))


def _set_versions(context: ssl.SSLContext, protocols: Sequence[str], suites: Sequence[str]) -> None:
    """Allow these protocols and suites; empty: all. Raises StoreError for what Python's ssl cannot set."""
    versions = set(protocols or PROTOCOLS)
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise StoreError(
                f"ssl.enabled.protocols: {protocol} is not served; there are TLSv1.2 and TLSv1.3"
            )
    if suites:
        unknown = [suite for suite in suites if suite not in TLS_1_2 and suite not in TLS_1_3]
        if unknown:
            raise StoreError(f"ssl.cipher.suites: {unknown[0]} is unknown")
        new, old = [s for s in suites if s in TLS_1_3], [s for s in suites if s in TLS_1_2]
        if new and "TLSv1.3" in versions and len(set(new)) < len(TLS_1_3):
            raise StoreError(
                "ssl.cipher.suites: Python cannot choose among the suites of TLS 1.3: "
                f"name all of {', '.join(TLS_1_3)}, or none of them"
            )
        versions -= set() if new else {"TLSv1.3"}
        versions -= set() if old else {"TLSv1.2"}
        if old:
            try:
                context.set_ciphers(":".join(TLS_1_2[suite] for suite in old))
            except ssl.SSLError:
                raise StoreError(f"ssl.cipher.suites: OpenSSL here has none of {', '.join(old)}") from None
    if not versions:
        raise StoreError("ssl.cipher.suites: none is for a protocol of ssl.enabled.protocols")
    context.minimum_version = min(PROTOCOLS[version] for version in versions)
    context.maximum_version = max(PROTOCOLS[version] for version in versions)


def incompatibility(
    old: Certificate, new: Certificate, *, allow_dn_changes: bool, allow_san_changes: bool
) -> str | None:
    """Return why a broker may not go over from one certificate to another, or None."""
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
