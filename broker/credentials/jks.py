"""Reads Java key stores (JKS), the format of ``keytool`` before Java 9.

Source: the class ``sun.security.provider.JavaKeyStore`` and its ``KeyProtector``. There is no kept library for it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

MAGIC = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES = 20
_SALT_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2


class JksError(Exception):
    """The bytes are no such key store, or the password is wrong."""


class Entry(NamedTuple):
    """A private key with its certificate chain, or a trusted certificate with ``key`` None. All are DER."""

    alias: str
    key: bytes | None
    """An encrypted PKCS #8 private key; `decrypt` decrypts it."""
    chain: list[bytes]


def read(data: bytes, password: str | None) -> list[Entry]:
    """Return the entries of a key store. Without a password its integrity is not checked, as in Java.

    Raises JksError.
    """
    if password is not None:
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        expected = hashlib.sha1(_utf16(password) + _WHITENER + content).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("it was changed, or the password is wrong")
    try:
        return _entries(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise JksError(f"it is damaged ({error})") from None


def decrypt(protected: bytes, password: str) -> bytes:
    """Return a private key as PKCS #8. Raises JksError if the password is wrong."""
    data = _encrypted_part(protected)
    salt, encrypted, check = data[:_SALT_BYTES], data[_SALT_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    secret = _utf16(password)
    stream, block = b"", salt
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(byte ^ mask for byte, mask in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise JksError("the password of the key is wrong")
    return key


def _entries(data: bytes) -> list[Entry]:
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != MAGIC or version not in (1, 2):
        raise JksError("it is no JKS key store")
    position = 12
    entries = []

    def take(layout: str) -> int:
        nonlocal position
        value: int = struct.unpack_from(layout, data, position)[0]
        position += struct.calcsize(layout)
        return value

    def take_bytes(size: int) -> bytes:
        nonlocal position
        taken = data[position : position + size]
        if len(taken) < size:
            raise IndexError("it ends too early")
        position += size
        return taken

    def take_certificate() -> bytes:
        if version == 2:
            take_bytes(take(">H"))  # its type, always X.509
        return take_bytes(take(">I"))

    for _ in range(count):
        tag = take(">I")
        alias = take_bytes(take(">H")).decode()
        take(">Q")  # when it was made
        if tag == _KEY_ENTRY:
            key = take_bytes(take(">I"))
            entries.append(Entry(alias, key, [take_certificate() for _ in range(take(">I"))]))
        elif tag == _CERTIFICATE_ENTRY:
            entries.append(Entry(alias, None, [take_certificate()]))
        else:
            raise JksError(f"it has an entry of type {tag}")
    return entries


def _encrypted_part(protected: bytes) -> bytes:
    """Return the octet string of an ``EncryptedPrivateKeyInfo``, whose algorithm is Java's own."""
    _, inner, _ = _element(protected, 0, 0x30)
    start, _, end = _element(protected, inner, 0x30)
    del start
    _, octets, last = _element(protected, end, 0x04)
    return protected[octets:last]


def _element(data: bytes, at: int, tag: int) -> tuple[int, int, int]:
    """Return where a DER element begins, where its content begins, and where it ends."""
    if at >= len(data) or data[at] != tag:
        raise JksError("the key is damaged")
    length, content = data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[content : content + size], "big")
        content += size
    return at, content, content + length


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
