"""Protocols, cipher suites and trusted certificates of a TLS context. Source: ``DefaultSslEngineFactory``."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from oncelog.broker.credentials.ciphers import TLS_1_2, TLS_1_3
from oncelog.broker.credentials.stores import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.x509 import Certificate

PROTOCOLS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def _items(values: Mapping[str, str | None], key: str) -> list[str]:
    return [item.strip() for item in (values.get(key) or "").split(",") if item.strip()]


def trust(context: ssl.SSLContext, trusted: list[Certificate] | None, purpose: ssl.Purpose) -> None:
    """Believe peers whose certificates these have signed; None: those that the system trusts for the purpose.

    Any trusted certificate is an anchor, as in Java.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trusted is None:
        context.load_default_certs(purpose)
        return
    from cryptography.hazmat.primitives.serialization import Encoding

    for certificate in trusted:
        context.load_verify_locations(cadata=certificate.public_bytes(Encoding.DER))


def set_versions(context: ssl.SSLContext, values: Mapping[str, str | None]) -> None:
    """Allow the protocols and suites of ``ssl.enabled.protocols`` and ``ssl.cipher.suites``; empty: all.

    Raises StoreError for what Python's ssl cannot set.
    """
    protocols, suites = _items(values, "ssl.enabled.protocols"), _items(values, "ssl.cipher.suites")
    versions = set(protocols or PROTOCOLS)
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise StoreError(
                f"ssl.enabled.protocols: {protocol} is not served; there are TLSv1.2 and TLSv1.3"
            )
    if suites:
        unknown = [suite for suite in suites if suite not in TLS_1_2 and suite not in TLS_1_3]
        if unknown:
            raise StoreError(f"ssl.cipher.suites: {unknown[0]} is unknown, or none that OpenSSL sets")
        new, old = [s for s in suites if s in TLS_1_3], [s for s in suites if s in TLS_1_2]
        if new and "TLSv1.3" in versions and len(set(new)) < len(TLS_1_3):
            raise StoreError(
                "ssl.cipher.suites: Python cannot choose among the suites of TLS 1.3: "
                f"name all of {', '.join(TLS_1_3)}, or none of them"
            )
        versions -= set() if new else {"TLSv1.3"}
        versions -= set() if old else {"TLSv1.2"}
        if old:
            _set_suites(context, old)
    if not versions:
        raise StoreError("ssl.cipher.suites: none is for a protocol of ssl.enabled.protocols")
    context.minimum_version = min(PROTOCOLS[version] for version in versions)
    context.maximum_version = max(PROTOCOLS[version] for version in versions)


def _set_suites(context: ssl.SSLContext, suites: list[str]) -> None:
    """Allow these suites of TLS 1.2 only. OpenSSL would leave out silently what it does not have."""
    with suppress(ssl.SSLError):
        context.set_ciphers(":".join(TLS_1_2[suite] for suite in suites))
    there = {cipher["name"] for cipher in context.get_ciphers()}
    missing = [suite for suite in suites if TLS_1_2[suite] not in there]
    if missing:
        raise StoreError(f"ssl.cipher.suites: OpenSSL here does not have {', '.join(missing)}")
