"""The settings of one group: its own dynamic configuration, clamped to the broker's limits, else the broker's setting.

Values are checked when they are set, but the broker's limits may change afterwards. Source: Kafka's ``GroupConfig``,
``GroupConfigManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext


def within(context: GroupContext, group_id: str, name: str, default: int, low: int, high: int) -> int:
    """The value of the group's key ``name``, or ``default`` if it does not set it."""
    text = context.overrides(group_id).get(name)
    return default if text is None else max(low, min(high, int(text)))
