"""The operations on a `ControlledBroker`: what `oncelog.Broker` and the control API call, by name.

An operation is a function of that name in the module that `MODULES` names: ``async def name(broker, *, arguments)``.
Arguments and results are plain values and the dataclasses of `oncelog.broker.control.types`, so that another process
can call it. It raises the errors of `oncelog.broker.control.errors`, and KafkaError, before it changes anything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.control.controlled_broker import ControlledBroker

_HERE = "oncelog.broker.control.operations."

MODULES: dict[str, str] = {
    "start": _HERE + "lifecycle",
    "stop": _HERE + "lifecycle",
    "kill": _HERE + "lifecycle",
    "lose_power": _HERE + "lifecycle",
    "reset": _HERE + "lifecycle",
    "create_topics": _HERE + "lifecycle",
    "snapshot": _HERE + "lifecycle",
    "info": _HERE + "lifecycle",
    "log_lines": _HERE + "lifecycle",
    "topics": _HERE + "reading",
    "topic": _HERE + "reading",
    "records": _HERE + "reading",
    "groups": _HERE + "reading",
    "group": _HERE + "reading",
    "transactions": _HERE + "reading",
    "transaction": _HERE + "reading",
    "producers": _HERE + "reading",
    "add_rule": _HERE + "rules",
    "load_rules": _HERE + "rules",
    "rules": _HERE + "rules",
    "wait_fired": _HERE + "rules",
    "release": _HERE + "rules",
    "remove_rule": _HERE + "rules",
    "clear_rules": _HERE + "rules",
    "clock": _HERE + "clock",
    "clock_advance": _HERE + "clock",
    "clock_set": _HERE + "clock",
    "clock_freeze": _HERE + "clock",
    "clock_resume": _HERE + "clock",
    "expire_member": _HERE + "clock",
    "expire_transaction": _HERE + "clock",
    "produce": _HERE + "writing",
    "delete_records": _HERE + "writing",
    "create_topic": _HERE + "writing",
    "delete_topic": _HERE + "writing",
    "commit_offsets": _HERE + "writing",
    "configure_group": _HERE + "writing",
    "configure_client_metrics": _HERE + "writing",
    "requests": _HERE + "waiting",
    "wait_for": _HERE + "waiting",
    "client_metrics": _HERE + "client_metrics",
    "wait_for_client_metrics": _HERE + "client_metrics",
    "failed_logins": _HERE + "failed_logins",
    "wait_for_failed_login": _HERE + "failed_logins",
    "wait_for_records": _HERE + "waiting",
    "wait_for_group": _HERE + "waiting",
    "share_groups": _HERE + "share_groups",
    "share_group": _HERE + "share_groups",
    "wait_for_share_group": _HERE + "share_groups",
    "wait_for_transaction": _HERE + "waiting",
}
"""The module of each operation; it is imported with the first call."""


async def call_operation(broker: ControlledBroker, name: str, arguments: Mapping[str, Any]) -> Any:
    """Call an operation and return its result. Raises KeyError for an unknown name."""
    function = getattr(importlib.import_module(MODULES[name]), name)
    try:
        return await function(broker, **arguments)
    finally:
        broker.journal.changes.note()
