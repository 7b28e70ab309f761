"""The transactions of a trial, from its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.prove.trials.history import Event


def transaction_of(event: Event, events: Sequence[Event]) -> list[Event]:
    """Return the requests of a request's transaction, the one that ends it among them."""
    found: list[Event] = []
    for one in events:
        if one.transactional_id != event.transactional_id:
            continue
        if one.api == "InitProducerId":
            if one.number > event.number:
                break
            found = []
            continue
        found.append(one)
        if one.api == "EndTxn":
            if one.number >= event.number:
                break
            found = []
    return found


def is_committed(event: Event, events: Sequence[Event]) -> bool:
    """Return whether the transaction of a request was committed."""
    return bool(transaction_of(event, events)[-1].is_commit)
