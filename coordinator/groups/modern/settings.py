"""The settings of one group: its own configuration, else the broker's. Source: Kafka's ``GroupConfigManager``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.coordinator.groups.context import GroupContext


def own_or(default: int, context: GroupContext, group_id: str, name: str) -> int:
    """The value of the group's key ``name``, or ``default`` if it does not set it."""
    text = context.overrides(group_id).get(name)
    return default if text is None else int(text)


def own_flag_or(default: bool, context: GroupContext, group_id: str, name: str) -> bool:
    """The same for a boolean."""
    text = context.overrides(group_id).get(name)
    return default if text is None else text == "true"
