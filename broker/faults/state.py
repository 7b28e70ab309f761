"""`RuleState`: what a rule has done so far, for its user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def rule_name(id_: int, text: str) -> str:
    """Return the name of a rule in messages."""
    return f"rule {id_} ({text})"


@dataclass(frozen=True)
class RuleState:
    """The counts of a rule so far, and why it may not have fired."""

    id: int
    rule: dict[str, Any] = field(compare=False)
    """The rule as it was given."""
    text: str
    """The rule in one line."""
    matched: int
    """How many requests passed its filters."""
    fired: int
    """How often it acted."""
    held: int
    """How many requests wait for its release now."""
    is_released: bool
    seed: int | None
    """Of with_probability."""
    notes: tuple[str, ...]
    """Why it did not fire where one might expect it."""
    came: int = field(default=0, compare=False)
    """How many requests of its APIs came, up to and with the first that passed its filters."""
    seen: dict[str, tuple[str | int, ...]] = field(default_factory=dict, compare=False)
    """By filter, the values that these had, ten at most: to find the one that is misspelt."""

    def __str__(self) -> str:
        parts = [f"matched {self.matched}", f"fired {self.fired}"]
        if self.held:
            parts.append(f"holds {self.held}")
        if self.is_released:
            parts.append("released")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        told = [f"{rule_name(self.id, self.text)}: {', '.join(parts)}", *self.notes]
        if not self.matched:
            told.append(self._unmatched_text)
        return "; ".join(told)

    @property
    def _unmatched_text(self) -> str:
        """The requests that came instead of those that the rule is for, as a text."""
        kind = "connection" if "refuse_connections" in self.rule else "request"
        kind = "step" if "crash_at" in self.rule else kind
        if not self.came:
            return f"no such {kind} came"
        values = "; ".join(f"{name} {', '.join(map(str, seen))}" for name, seen in self.seen.items())
        plural = "" if self.came == 1 else "s"
        return f"{self.came} {kind}{plural} came{f', with {values}' if values else ''}"
