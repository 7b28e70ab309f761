"""Key stores and trust stores: PEM (a file, or in the configuration), PKCS #12 and JKS.

Source: ``DefaultSslEngineFactory``. As in Java, the first bytes tell PKCS #12 from JKS, whatever the type says.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.credentials import jks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

PEM = "PEM"
TYPES = (PEM, "PKCS12", "JKS")

_PEM_KEY = "-----BEGIN ([A-Z ]*PRIVATE KEY)-----"
_KEY = re.compile(r"-----BEGIN ((?:ENCRYPTED )?PRIVATE KEY)-----[^-]+-----END \1-----")


class StoreError(Exception):
    """A store cannot be used. The message is for the user: it names the key or the file, and no secret."""


class KeyStore(NamedTuple):
    """A private key and its certificate chain, the key's own certificate first; both as PEM."""

    key: bytes
    chain: bytes
    certificate: Certificate


def load_key_store(values: Mapping[str, str | None], read_file: Callable[[str], bytes]) -> KeyStore | None:
    """Return the key store that the keys ``ssl.keystore.*`` describe, or None if they name none.

    Raises StoreError.
    """
    kind, path = values.get("ssl.keystore.type") or "JKS", values.get("ssl.keystore.location")
    password, key_password = values.get("ssl.keystore.password"), values.get("ssl.key.password")
    key, chain = values.get("ssl.keystore.key"), values.get("ssl.keystore.certificate.chain")
    _check_type("ssl.keystore.type", kind)
    if key is not None or chain is not None:
        if kind != PEM:
            raise StoreError(
                f"ssl.keystore.key and ssl.keystore.certificate.chain need ssl.keystore.type=PEM, which is {kind}"
            )
        if key is None or chain is None:
            missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
            raise StoreError(f"{missing} is missing: the other of both is set")
        if path is not None:
            raise StoreError("ssl.keystore.location and ssl.keystore.key exclude each other")
        if password is not None:
            raise StoreError("ssl.keystore.password is not for PEM: use ssl.key.password")
        return _pem_key_store("ssl.keystore.key", key, chain, key_password)
    if path is None:
        if password is not None:
            raise StoreError("ssl.keystore.password is set, but no ssl.keystore.location")
        return None
    data = _read(path, read_file)
    if kind == PEM:
        if password is not None:
            raise StoreError("ssl.keystore.password is not for PEM: use ssl.key.password")
        text = data.decode("latin-1")
        return _pem_key_store(path, text, text, key_password)
    _check_not_pem("ssl.keystore.type", kind, path, data)
    if password is None:
        raise StoreError(f"{path} needs ssl.keystore.password")
    if data.startswith(jks.MAGIC):
        return _jks_key_store(path, data, password, key_password or password)
    return _pkcs12_key_store(path, data, password)


def load_trust_store(
    values: Mapping[str, str | None], read_file: Callable[[str], bytes]
) -> list[Certificate] | None:
    """Return the trusted certificates that the keys ``ssl.truststore.*`` name, or None if they name none.

    Raises StoreError.
    """
    kind, path = values.get("ssl.truststore.type") or "JKS", values.get("ssl.truststore.location")
    password, inline = values.get("ssl.truststore.password"), values.get("ssl.truststore.certificates")
    _check_type("ssl.truststore.type", kind)
    if inline is not None:
        if kind != PEM:
            raise StoreError(f"ssl.truststore.certificates needs ssl.truststore.type=PEM, which is {kind}")
        if path is not None:
            raise StoreError("ssl.truststore.location and ssl.truststore.certificates exclude each other")
    if kind == PEM and password is not None:
        raise StoreError("ssl.truststore.password is not for PEM")
    if inline is not None:
        return _certificates("ssl.truststore.certificates", inline)
    if path is None:
        if password is not None:
            raise StoreError("ssl.truststore.password is set, but no ssl.truststore.location")
        return None
    data = _read(path, read_file)
    if kind == PEM:
        return _certificates(path, data.decode("latin-1"))
    _check_not_pem("ssl.truststore.type", kind, path, data)
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509 import load_der_x509_certificate

    try:
        if data.startswith(jks.MAGIC):
            return [
                load_der_x509_certificate(der) for entry in jks.read(data, password) for der in entry.chain
            ]
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (jks.JksError, ValueError) as error:
        raise StoreError(f"cannot use the trust store {path}: {error}") from None
    return [each.certificate for each in [*filter(None, [store.cert]), *store.additional_certs]]


def _check_type(key: str, kind: str) -> None:
    if kind not in TYPES:
        raise StoreError(f"{key}={kind}: expected one of {', '.join(TYPES)}")


def _check_not_pem(key: str, kind: str, path: str, data: bytes) -> None:
    if b"-----BEGIN " in data:
        raise StoreError(f"{path} is PEM, not {kind}: set {key}=PEM")


def _read(path: str, read_file: Callable[[str], bytes]) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None


def _certificates(where: str, text: str) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(text.encode("latin-1", "replace"))
    except ValueError as error:
        raise StoreError(f"no certificates in {where}: {str(error).partition('. See')[0]}") from None


def _pem_key_store(where: str, key_text: str, chain_text: str, password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    keys = list(_KEY.finditer(key_text))
    if len(keys) != 1:
        others = sorted({name for name in re.findall(_PEM_KEY, key_text) if not keys})
        hint = f"; openssl pkcs8 -topk8 -nocrypt makes one of the {others[0]} there" if others else ""
        raise StoreError(f"expected one PRIVATE KEY (PKCS #8) in {where}, but found {len(keys)}{hint}")
    is_encrypted = keys[0][1].startswith("ENCRYPTED")
    if is_encrypted and password is None:
        raise StoreError(f"the private key in {where} is encrypted: set ssl.key.password")
    try:
        key = load_pem_private_key(
            keys[0][0].encode(), password.encode() if is_encrypted and password is not None else None
        )
    except (ValueError, TypeError):
        raise StoreError(f"the private key in {where} is damaged, or ssl.key.password is wrong") from None
    return _key_store(where, key, _certificates(where, chain_text))


def _jks_key_store(path: str, data: bytes, password: str, key_password: str) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import load_der_private_key
    from cryptography.x509 import load_der_x509_certificate

    try:
        for entry in jks.read(data, password):
            if entry.key is not None:
                key = load_der_private_key(jks.decrypt(entry.key, key_password), None)
                return _key_store(path, key, [load_der_x509_certificate(der) for der in entry.chain])
    except (jks.JksError, ValueError) as error:
        raise StoreError(f"cannot use the key store {path}: {error}") from None
    raise StoreError(f"the key store {path} has no private key")


def _pkcs12_key_store(path: str, data: bytes, password: str) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        store = pkcs12.load_pkcs12(data, password.encode())
    except ValueError as error:
        raise StoreError(f"cannot use the key store {path}: {error}") from None
    if store.key is None or store.cert is None:
        raise StoreError(f"the key store {path} has no private key")
    chain = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    return _key_store(path, store.key, chain)


def _key_store(where: str, key: PrivateKeyTypes, chain: list[Certificate]) -> KeyStore:
    """Raises StoreError if the first certificate is not the key's."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    public = [
        each.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for each in (key.public_key(), chain[0].public_key())
    ]
    if public[0] != public[1]:
        raise StoreError(f"the certificate in {where} does not fit the private key")
    return KeyStore(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain),
        chain[0],
    )
