"""`FailedLogin`: a peer was turned away before it was served."""

from __future__ import annotations

from typing import NamedTuple


class FailedLogin(NamedTuple):
    """Told to the observers of log-ins (`Services.login_observers`)."""

    step: str
    """The step that failed: ``TLS`` (the handshake, or the name in the certificate) or ``SASL``."""
    reason: str
    mechanism: str = ""
    """Of SASL: the mechanism, as the peer said; empty if it has not."""
    user: str = ""
    """The user that the peer claimed to be; empty if it has not said so."""
