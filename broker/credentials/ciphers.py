"""Cipher suites by their names in Java, and in OpenSSL."""

from __future__ import annotations

TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256")
"""The suites of TLS 1.3 that OpenSSL offers; Python cannot choose among them."""


def _table() -> dict[str, str]:
    """TLS 1.2: the name in Java (IANA's) to OpenSSL's."""
    bulk = {
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "AES_256_CBC_SHA384": "AES256-SHA384",
        "AES_256_CBC_SHA256": "AES256-SHA256",
        "AES_128_CBC_SHA256": "AES128-SHA256",
        "AES_256_CBC_SHA": "AES256-SHA",
        "AES_128_CBC_SHA": "AES128-SHA",
    }
    exchange = {
        "TLS_ECDHE_ECDSA_WITH_": "ECDHE-ECDSA-",
        "TLS_ECDHE_RSA_WITH_": "ECDHE-RSA-",
        "TLS_DHE_RSA_WITH_": "DHE-RSA-",
        "TLS_RSA_WITH_": "",
    }
    return {
        java + suite: openssl + name
        for java, openssl in exchange.items()
        for suite, name in bulk.items()
        if not (suite.startswith("CHACHA20") and not openssl)
    }


TLS_1_2 = _table()
