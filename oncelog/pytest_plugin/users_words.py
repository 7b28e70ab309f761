"""What a test author calls the operations that a Kafka cluster cannot perform."""

from __future__ import annotations

from oncelog.broker.control.controlled_proxy import SHARED

OF_A_PROXY = frozenset(SHARED) - {"start", "stop", "kill"}
"""The operations that a proxy before the cluster performs."""

_RULES = ("add_rule", "load_rules", "rules", "wait_fired", "release", "remove_rule", "clear_rules")
_CLOCK = ("clock", "clock_advance", "clock_set", "clock_freeze", "clock_resume")
_WORDS = {
    **dict.fromkeys(_RULES, "kafka.faults"),
    **dict.fromkeys(_CLOCK, "kafka.clock"),
    "expire_member": "kafka.group(...).expire_member()",
    "expire_transaction": "kafka.transactions[...].expire()",
    "producers": "kafka.producers",
    "log_lines": "kafka.log_lines",
}


def needs_a_broker(operation: str) -> str:
    """Return the begin of a sentence: what the operation needs, in the words of the test."""
    words = _WORDS.get(operation, f"kafka.{operation}()")
    return (
        f"{words} needs a broker of oncelog{', or --kafka-through-proxy' if operation in OF_A_PROXY else ''}"
    )
