"""`CrashWatch`: lets a node under control die at the crash points of rules, in each of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from oncelog.broker.faults.active_rule import ActiveRule
    from oncelog.broker.faults.crash_points import CrashPoints
    from oncelog.broker.faults.fault_rules import FaultRules
    from oncelog.broker.node.node import Node


class CrashWatch:
    """``crash`` lets the node die, see `CrashPoints`. Nothing is imported before there is a rule for it."""

    def __init__(
        self,
        crash: Callable[[ActiveRule], None],
        node_id: int | None = None,
        running: Callable[[], Iterable[Node]] | None = None,
    ) -> None:
        self._crash = crash
        self._running = running
        self._node_id = node_id
        self._points: CrashPoints | None = None

    def update(self, node: Node, rules: FaultRules) -> None:
        """The rules have changed, or ``node`` is the next run."""
        if self._points is None:
            if not rules.of("crash_at"):
                return
            from oncelog.broker.faults.crash_points import CrashPoints

            self._points = CrashPoints(rules, self._crash, self._node_id, self._running)
        self._points.update(node)
