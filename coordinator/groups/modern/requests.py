"""Checks of the heartbeats of consumer groups and share groups."""

from __future__ import annotations

from oncelog.wire.errors import ErrorCode, KafkaError


def refuse_blank(text: str | None, name: str) -> None:
    """Raise KafkaError (INVALID_REQUEST) for a text that is given, but blank."""
    if text is not None and not text.strip():
        raise invalid(f"{name} can't be empty.")


def invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
