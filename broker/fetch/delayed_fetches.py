"""`DelayedFetches`: what the delayed fetches of a node share. A start imports it, and nothing of Fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.broker.fetch.delayed import DelayedFetch
    from oncelog.broker.fetch.template import ResponseTemplates

COMPLETED_BY_APPEND_MAX = 4
"""Delayed fetches that the appending connection completes before it goes on; their own tasks complete any others."""


class DelayedFetches:
    """The delayed fetches that were satisfied lately, and the templates of their responses."""

    __slots__ = ("_templates", "satisfied")

    def __init__(self) -> None:
        self.satisfied: list[DelayedFetch] = []
        self._templates: ResponseTemplates | None = None

    def templates(self) -> ResponseTemplates:
        """The templates; none at first."""
        if self._templates is None:
            from oncelog.broker.fetch.template import ResponseTemplates

            self._templates = ResponseTemplates()
        return self._templates

    def forget(self) -> None:
        """Keep no template."""
        self._templates = None

    def complete_satisfied(self) -> None:
        """Complete the first few of `satisfied`."""
        for delayed in self.satisfied[:COMPLETED_BY_APPEND_MAX]:
            delayed.try_complete()
        self.satisfied.clear()

    def leave_to_their_tasks(self) -> None:
        """Complete none: their own tasks do."""
        self.satisfied.clear()
