"""`FailedAuthentication`: a TLS handshake or a log-in that failed, for the observers of log-ins."""

from __future__ import annotations

from typing import NamedTuple


class FailedAuthentication(NamedTuple):
    """The argument of `Services.login_observers` for a peer that is turned away."""

    step: str
    """The step that failed: ``TLS`` (the handshake, or the name in the certificate) or ``SASL``."""
    reason: str
    mechanism: str = ""
    """The SASL mechanism that the peer named; empty if it named none."""
    user: str = ""
    """The user name that the peer claimed; empty if it claimed none."""
