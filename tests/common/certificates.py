"""Certificates for tests: an authority, and what it has signed."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from oncelog.broker.seams.tls import load_certificate, new_server_context

DAY = datetime.timedelta(days=1)
SIGNING = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""The use of an authority's key. Python from 3.13 on refuses an authority without it (VERIFY_X509_STRICT)."""


@dataclass
class Identity:
    """A key and its certificate, after them the authority's; all PEM."""

    key: bytes
    chain: bytes
    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey

    def server_context(self) -> ssl.SSLContext:
        """For the listener of a server that shows it."""
        context = new_server_context()
        load_certificate(context, self.key, self.chain)
        return context


def subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


class Authority:
    """Signs certificates that are valid from a day ago for ``days`` days."""

    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(subject(name), self._key, 30, is_authority=True)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def identity(
        self,
        name: str,
        *,
        days: int = 30,
        key_name: x509.Name | None = None,
        alternatives: Sequence[str] = ("localhost", "127.0.0.1"),
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(key_name or subject(name), key, days, alternatives=alternatives)
        return Identity(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            certificate.public_bytes(serialization.Encoding.PEM) + self.pem,
            certificate,
            key,
        )

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        days: int,
        *,
        is_authority: bool = False,
        alternatives: Sequence[str] = ("localhost", "127.0.0.1"),
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = [
            x509.IPAddress(ipaddress.ip_address(one)) if one[0].isdecimal() else x509.DNSName(one)
            for one in alternatives
        ]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name if is_authority else self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if is_authority:
            builder = builder.add_extension(SIGNING, critical=True)
        return builder.sign(self._key, hashes.SHA256())


def pem_listener(server: Identity, authority: Authority, **more: str) -> dict[str, str]:
    """A broker's configuration for TLS: what it shows, and whom it believes; ``more`` has ``_`` for ``.``."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.key.decode(),
        "ssl.keystore.certificate.chain": server.chain.decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem.decode(),
        **{key.replace("_", "."): text for key, text in more.items()},
    }


def client_hello() -> bytes:
    """The first message of a client's handshake, for localhost."""
    outgoing = ssl.MemoryBIO()
    half = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        half.do_handshake()
    return outgoing.read()
