"""Recognises other protocols than Kafka's by the first bytes of a connection, for the log."""

from __future__ import annotations

_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
_HTTP2_PREFACE = b"PRI "
_PROXY_HEADERS = (b"PROX", b"\r\n\r\n")
_TLS = "this looks like a TLS handshake: this listener speaks plaintext"
_HTTP = "this looks like an HTTP request: this listener speaks Kafka's protocol"
_PROXY = "this looks like a PROXY protocol header: this listener takes none"
SENTENCES = (_TLS, _HTTP, _PROXY)
_TLS_HANDSHAKE = 22
_TLS_MAJOR_VERSION = 3
_TLS_MINOR_VERSION_MAX = 4


def unexpected_bytes(first: bytes | bytearray | memoryview) -> str | None:
    """Return a sentence about the protocol of these bytes; None if it is not one of those known here.

    ``first`` has at least the four bytes in the place of a frame's size. As a size they would be more than 200 MB, so
    a Kafka request never looks like one of these protocols.

    Sources: RFC 8446 section 5.1 (TLSPlaintext), RFC 9110 section 9 and RFC 9113 section 3.4 (HTTP), HAProxy's
    proxy-protocol.txt section 2.
    """
    start = bytes(first[:4])
    if len(start) < 4:
        return None
    if start[:2] == bytes((_TLS_HANDSHAKE, _TLS_MAJOR_VERSION)) and start[2] <= _TLS_MINOR_VERSION_MAX:
        return _TLS
    if start in _HTTP_METHODS or start == _HTTP2_PREFACE:
        return _HTTP
    if start in _PROXY_HEADERS:
        return _PROXY
    return None
