"""Snapshots that tests have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oncelog.broker.control import snapshots


def rewritten(content: bytes, **changes: Any) -> bytes:
    """The snapshot with another manifest."""
    snapshot = snapshots.decode(content, "it")
    return snapshots.encode(replace(snapshot, manifest=replace(snapshot.manifest, **changes)))
