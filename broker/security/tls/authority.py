"""`DevelopmentAuthority`: a certificate authority for development and tests, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SigningKey = (
    ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
)

DAYS = 825
"""For how many days certificates are valid: the longest that Apple's clients accept."""
ORGANIZATION = "oncelog development"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Certificate(NamedTuple):
    """A private key and its certificate chain, as PEM."""

    key: bytes
    chain: bytes


class Validity(NamedTuple):
    """When a certificate is valid, in UTC, to the second."""

    begin: datetime
    end: datetime


def usual_validity(now_ms: int, days: int = DAYS) -> Validity:
    """Return the validity of certificates that are made now (wall time). It has begun: clocks differ."""
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    return Validity(now - timedelta(days=1), now + timedelta(days=days))


_SIGNING_KEYS = (
    ec.EllipticCurvePrivateKey,
    rsa.RSAPrivateKey,
    ed25519.Ed25519PrivateKey,
    ed448.Ed448PrivateKey,
)
_WITHOUT_HASH = (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)


def broker_config(server: Certificate, authority: bytes) -> dict[str, str]:
    """Return the keys of a broker with a certificate and the authority that it trusts, as PEM."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.key.decode(),
        "ssl.keystore.certificate.chain": server.chain.decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.decode(),
        "ssl.client.auth": "requested",
    }


class DevelopmentAuthority:
    """Signs certificates with a key of its own. ``now_ms``: wall time."""

    def __init__(
        self, now_ms: int, kept: Certificate | None = None, validity: Validity | None = None
    ) -> None:
        """Make one that is valid at ``validity``, or use again the one whose key and certificate were ``kept``.

        Raises ValueError for a key or a certificate that cannot be used.
        """
        self.usual = usual_validity(now_ms)
        """When certificates are valid if nothing else is said."""
        if kept is None:
            self._key: SigningKey = ec.generate_private_key(ec.SECP256R1())
            name = _name("oncelog development authority")
            self._certificate = self._signed(
                name, self._key.public_key(), name, validity or self.usual, authority=True
            )
        else:
            self._key, self._certificate = _loaded(kept)
        self.pem = self._certificate.public_bytes(Encoding.PEM)
        """Its certificate."""

    @property
    def key(self) -> bytes:
        """Its private key, as PEM."""
        return _pem(self._key)

    @property
    def validity(self) -> Validity:
        """When its own certificate is valid."""
        return Validity(self._certificate.not_valid_before_utc, self._certificate.not_valid_after_utc)

    @property
    def missing_extensions(self) -> list[str]:
        """The extensions that its certificate lacks and strict verification asks for (``X509_V_FLAG_X509_STRICT``)."""
        there = {one.oid: one for one in self._certificate.extensions}
        constraints = there.get(x509.BasicConstraints.oid)
        usage = there.get(x509.KeyUsage.oid)
        missing = []
        if usage is None or not usage.value.key_cert_sign:
            missing.append("key usage (keyCertSign)")
        if constraints is None or not constraints.critical:
            missing.append("critical basic constraints")
        if x509.SubjectKeyIdentifier.oid not in there:
            missing.append("subject key identifier")
        return missing

    def server(self, names: Sequence[str] = LOCAL_NAMES, validity: Validity | None = None) -> Certificate:
        """Return a certificate for a broker with these host names and addresses."""
        return self._issue(names[0], names, validity)

    def client(self, name: str, validity: Validity | None = None) -> Certificate:
        """Return a certificate for a client: ``CN=name``."""
        return self._issue(name, (), validity)

    def _issue(self, common_name: str, names: Sequence[str], validity: Validity | None) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(
            _name(common_name), key.public_key(), self._certificate.subject, validity or self.usual, names
        )
        return Certificate(_pem(key), certificate.public_bytes(Encoding.PEM) + self.pem)

    def _signed(
        self,
        subject: x509.Name,
        key: CertificateIssuerPublicKeyTypes,
        issuer: x509.Name,
        validity: Validity,
        names: Sequence[str] = (),
        *,
        authority: bool = False,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(validity.begin)
            .not_valid_after(validity.end)
            .add_extension(
                x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(self._identifier(authority=authority), critical=False)
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
        return builder.sign(self._key, None if isinstance(self._key, _WITHOUT_HASH) else hashes.SHA256())

    def _identifier(self, *, authority: bool) -> x509.AuthorityKeyIdentifier:
        """Return the authority's key identifier: that in its certificate, which others may have made their own way."""
        if not authority:
            with suppress(x509.ExtensionNotFound):
                own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
                return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own.value)
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def _loaded(kept: Certificate) -> tuple[SigningKey, x509.Certificate]:
    """Return the key and the certificate of an authority. Raises ValueError, which quotes neither."""
    try:
        key = load_pem_private_key(kept.key, None)
    except TypeError:
        raise ValueError("its key has a password") from None
    except ValueError:
        raise ValueError("there is no private key (PEM) in it") from None
    if not isinstance(key, _SIGNING_KEYS):
        raise ValueError("its key cannot sign certificates")
    try:
        certificate = x509.load_pem_x509_certificate(kept.chain)
    except ValueError:
        raise ValueError("there is no certificate (PEM) in it") from None
    if certificate.public_key() != key.public_key():
        raise ValueError("its key is not that of its certificate")
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        constraints = None
    if constraints is None or not constraints.ca:
        raise ValueError("its certificate is not that of an authority")
    return key, certificate


def _pem(key: SigningKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


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
