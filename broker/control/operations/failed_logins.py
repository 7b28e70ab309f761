"""Operations: peers that were turned away at a log-in or a TLS handshake, and waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.control.changes import check_timeout, wait_until
from oncelog.broker.control.errors import InvalidArgumentError

if TYPE_CHECKING:
    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.control.request_types import FailedLogin

SHOWN_MAX = 5
"""How many of them the error of a wait shows."""


async def failed_logins(broker: Controlled, *, listener: str | None = None) -> list[FailedLogin]:
    """Return the latest peers that were turned away, the newest last; with ``listener`` only those of that listener."""
    return [
        one for one in broker.journal.failed_logins if listener is None or one.listener == listener.upper()
    ]


async def wait_for_failed_login(
    broker: Controlled,
    *,
    listener: str | None = None,
    step: str | None = None,
    after: int = 0,
    timeout: float = 10,
) -> FailedLogin:
    """Wait until a peer was turned away; return the first such after number ``after``.

    Raises WaitTimeoutError after ``timeout`` seconds of real time, InvalidArgumentError.
    """
    check_timeout(timeout)
    if step not in (None, "TLS", "SASL"):
        raise InvalidArgumentError(f"step={step!r}: expected 'TLS' or 'SASL', or None for both")
    if not broker.journal.is_kept:
        raise InvalidArgumentError("this broker keeps no failed log-ins: it was made with requests_kept=0")

    async def check() -> FailedLogin | None:
        for one in await failed_logins(broker, listener=listener):
            if one.number > after and step in (None, one.step):
                return one
        return None

    async def explain() -> str:
        wanted = f"no failed {step or 'TLS or SASL'} log-in in {timeout:g} s"
        others = list(broker.journal.failed_logins)[-SHOWN_MAX:]
        if not others:
            return f"{wanted}; nobody was turned away"
        return "\n".join(
            [f"{wanted}; others that failed, the newest last:", *(f"  {one!r}" for one in others)]
        )

    return await wait_until(broker.journal.changes, check, lambda: (), timeout, explain)
