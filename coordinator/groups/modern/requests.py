"""Checks of the heartbeats of consumer groups and share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sized


TOPIC_NAMES_MAX = 10_000
"""Topic names of one member's subscription. An expression may match more."""


def refuse_many(names: Sized | None) -> None:
    """Raise KafkaError (INVALID_REQUEST) for a subscription of too many names."""
    if names is not None and len(names) > TOPIC_NAMES_MAX:
        raise invalid(f"A member may name at most {TOPIC_NAMES_MAX} topics, not {len(names)}.")


def refuse_blank(text: str | None, name: str) -> None:
    """Raise KafkaError (INVALID_REQUEST) for a text that is given, but blank."""
    if text is not None and not text.strip():
        raise invalid(f"{name} can't be empty.")


def invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
