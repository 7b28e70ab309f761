"""What became of a rule, as others are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def rule_name(id_: int, text: str) -> str:
    """Return what messages call a rule."""
    return f"rule {id_} ({text})"


@dataclass(frozen=True)
class RuleState:
    """What became of a rule so far."""

    id: int
    rule: dict[str, Any] = field(compare=False)
    """The rule as it was given."""
    text: str
    """The rule in one line."""
    matched: int
    """How many requests passed its filters."""
    fired: int
    """How often it did what it says."""
    held: int
    """How many requests wait for its release now."""
    is_released: bool
    seed: int | None
    """Of with_probability."""
    notes: tuple[str, ...]
    """Why it did not fire where one might expect it."""

    def __str__(self) -> str:
        parts = [f"matched {self.matched}", f"fired {self.fired}"]
        if self.held:
            parts.append(f"holds {self.held}")
        if self.is_released:
            parts.append("released")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        return "; ".join([f"{rule_name(self.id, self.text)}: {', '.join(parts)}", *self.notes])
