"""`handshake_failure`: the cause of a failed TLS handshake with a client, and a hint, for the log."""

from __future__ import annotations

import ssl

_HINTS = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS; perhaps its security.protocol is PLAINTEXT",
    "HTTP_REQUEST": "this listener speaks Kafka's protocol over TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "ssl.client.auth=required wants one of the client",
    "NO_SHARED_CIPHER": "no suite of ssl.cipher.suites suits both the client and the broker's key",
    "UNSUPPORTED_PROTOCOL": "ssl.enabled.protocols has no version that the client speaks",
    "UNEXPECTED_EOF_WHILE_READING": "the client closed the connection: "
    "perhaps it does not trust the broker's certificate, or not for this host name",
}
"""By OpenSSL's reason."""
_ALERT = "ALERT_"


def handshake_failure(error: ssl.SSLError) -> str:
    """Return a line about a handshake that failed, for the log. It has no secret."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"the client's certificate is refused: {error.verify_message}"
        hint = f"ssl.truststore.*: {_untrusted(error.verify_code)}" if _untrusted(error.verify_code) else ""
    elif _ALERT in reason:
        alert = reason.partition(_ALERT)[2]
        why = f"the client says: {_words(alert)}"
        about_certificate = "CERTIFICATE" in alert or alert == "UNKNOWN_CA"
        hint = (
            "it refuses the broker's certificate: for its authority, time or host names"
            if about_certificate
            else ""
        )
    else:
        why = _words(reason or error.strerror or "it failed")
        hint = _HINTS.get(reason, "")
    return f"TLS handshake: {why}{f' ({hint})' if hint else ''}"


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _untrusted(verify_code: int) -> str:
    """Return the hint of an ``X509_V_ERR_…`` about the trusted certificates, if there is one."""
    return "its authority is not among them" if verify_code in (18, 19, 20, 21) else ""
