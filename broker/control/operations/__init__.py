"""The operations on a `ControlledBroker`: what `oncelog.Broker` and the control API call, by name.

An operation is a function of that name in the module that `MODULES` names: ``async def name(source, *, arguments)``.
Arguments and results are plain values and the dataclasses of `oncelog.broker.control.types`, so that another process
can call it. It raises the errors of `oncelog.broker.control.errors`, and KafkaError, before it changes anything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from oncelog.broker.control.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from oncelog.broker.control.controlled_broker import ControlledBroker

OPERATIONS = {
    "operations.lifecycle": (
        "start",
        "stop",
        "kill",
        "lose_power",
        "reset",
        "create_topics",
        "snapshot",
        "info",
        "log_lines",
    ),
    "views": (
        "topics",
        "topic",
        "partitions",
        "records",
        "groups",
        "group",
        "transactions",
        "transaction",
        "producers",
    ),
    "operations.rules": (
        "add_rule",
        "load_rules",
        "rules",
        "wait_fired",
        "release",
        "remove_rule",
        "clear_rules",
    ),
    "operations.clock": (
        "clock",
        "clock_advance",
        "clock_set",
        "clock_freeze",
        "clock_resume",
        "expire_member",
        "expire_transaction",
    ),
    "operations.writing": (
        "produce",
        "delete_records",
        "create_topic",
        "delete_topic",
        "commit_offsets",
        "configure_group",
        "configure_client_metrics",
    ),
    "operations.waiting": (
        "requests",
        "wait_for",
        "wait_for_records",
        "wait_for_group",
        "wait_for_transaction",
    ),
    "operations.clients": ("connected_clients",),
    "operations.client_metrics": ("client_metrics", "wait_for_client_metrics"),
    "operations.failed_logins": ("failed_logins", "wait_for_failed_login"),
    "operations.share_groups": ("share_groups", "share_group", "wait_for_share_group"),
    "operations.dead_letters": ("dead_letters", "wait_for_dead_letters"),
    "nodes.operations": (
        "nodes",
        "start_node",
        "stop_node",
        "kill_node",
        "lose_power_of_node",
        "expire_node",
        "skew_clock",
        "clock_of_node",
        "log_lines_of_node",
        "requests_of_node",
        "records_of_node",
        "cut",
        "delay",
        "heal",
        "wait_for_partition",
        "elect_leaders",
        "move_leader",
    ),
}
"""By module in `oncelog.broker.control`."""

MODULES: dict[str, str] = {
    name: f"oncelog.broker.control.{module}" for module, names in OPERATIONS.items() for name in names
}
"""The module of each operation; it is imported with the first call."""
VIEWS = "oncelog.broker.control.views"
"""The module whose operations take the node that serves in place of the broker."""
OF_NODES = "oncelog.broker.control.nodes.operations"
"""The module whose operations are a `ControlledCluster`'s."""


def operation(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return an operation. Raises KeyError for an unknown name."""
    found: Callable[..., Coroutine[Any, Any, Any]] = getattr(importlib.import_module(MODULES[name]), name)
    return found


async def call_operation(broker: ControlledBroker, name: str, arguments: Mapping[str, Any]) -> Any:
    """Call an operation and return its result. Raises KeyError for an unknown name, UnsupportedError for one of several
    nodes.
    """
    if MODULES[name] == OF_NODES:
        raise UnsupportedError(f"{name}: there is one node; a broker with nodes=3, or --nodes 3, has several")
    function = operation(name)
    try:
        return await function(broker.node if MODULES[name] == VIEWS else broker, **arguments)
    finally:
        broker.journal.changes.note()
