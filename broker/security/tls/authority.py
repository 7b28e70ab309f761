"""`DevelopmentAuthority`: a certificate authority for development and tests, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

DAYS = 825
"""For how many days certificates are valid: the longest that Apple's clients accept."""
ORGANIZATION = "oncelog development"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Certificate(NamedTuple):
    """A private key and its certificate chain, as PEM."""

    key: bytes
    chain: bytes


class DevelopmentAuthority:
    """Signs certificates with a key of its own, which it never shows. ``now_ms``: wall time."""

    def __init__(self, now_ms: int) -> None:
        self._now = datetime.fromtimestamp(now_ms / 1000, UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name("oncelog development authority")
        self._certificate = self._signed(name, self._key, name, timedelta(days=DAYS), authority=True)
        self.pem = self._certificate.public_bytes(Encoding.PEM)
        """Its certificate."""

    def server(self, names: Sequence[str] = LOCAL_NAMES) -> Certificate:
        """Return a certificate for a broker with these host names and addresses."""
        return self._issue(names[0], names, timedelta(days=DAYS))

    def client(self, name: str, valid_for: timedelta = timedelta(days=DAYS)) -> Certificate:
        """Return a certificate for a client: ``CN=name``. With ``valid_for`` below zero it has expired."""
        return self._issue(name, (), valid_for)

    def _issue(self, common_name: str, names: Sequence[str], valid_for: timedelta) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_name(common_name), key, self._certificate.subject, valid_for, names)
        return Certificate(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            certificate.public_bytes(Encoding.PEM) + self.pem,
        )

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        issuer: x509.Name,
        valid_for: timedelta,
        names: Sequence[str] = (),
        *,
        authority: bool = False,
    ) -> x509.Certificate:
        begin = self._now - timedelta(days=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin + min(valid_for, timedelta()))
            .not_valid_after(self._now + valid_for)
            .add_extension(
                x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(
                x509.KeyUsage(
                    digital_signature=not authority,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=authority,
                    crl_sign=authority,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
            )
        if not authority:
            usage = [ExtendedKeyUsageOID.SERVER_AUTH] if names else []
            builder = builder.add_extension(
                x509.ExtendedKeyUsage([*usage, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
