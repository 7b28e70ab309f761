"""The levels of the node's loggers as configuration (ConfigResource type BROKER_LOGGER; KIP-412). They are not stored.

A logger has the name of a module; ``root`` and ``oncelog`` stand for all. One without a level of its own has that of
the nearest name above it. Source: ``RuntimeLoggerManager``, ``LoggingController``, ``ConfigHelper``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.logging.logs import KAFKA_LEVELS, ROOT, current_output, logger_names
from oncelog.broker.metadata.configs import parse_node_id
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_configs import DescribeConfigsResourceResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.metadata.config_changes import ConfigChange

DYNAMIC_BROKER_LOGGER_CONFIG = 6
"""``DescribeConfigsResponse.ConfigSource``."""
SET, DELETE = 0, 1
_LIST_OPERATIONS = {2: "APPEND", 3: "SUBTRACT"}
_LEVELS_TEXT = ", ".join(sorted(KAFKA_LEVELS))


def logger_rows(node_id: int, name: str, names: list[str] | None) -> list[DescribeConfigsResourceResult]:
    """Return the levels of all loggers, or those in ``names``. Raises KafkaError: INVALID_REQUEST."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    found = parse_node_id(name)
    if found is None:
        text = f"Broker id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if found != node_id:
        text = f"Unexpected broker id, expected {node_id} but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    output = current_output()
    if output is None:
        return []
    return [
        DescribeConfigsResourceResult(
            name=logger,
            value=output.level_name(logger),
            config_source=DYNAMIC_BROKER_LOGGER_CONFIG,
        )
        for logger in logger_names()
        if not names or logger in names
    ]


def check_loggers(node_id: int, name: str, changes: Sequence[ConfigChange]) -> None:
    """Raise KafkaError (INVALID_REQUEST, INVALID_CONFIG) if a change of levels is refused."""
    found = parse_node_id(name)
    if found is None:
        text = f"Node id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if found != node_id:
        text = f"Unexpected node id. Expected {node_id}, but received {found}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    for change in changes:
        _check_logger(change)


def _check_logger(change: ConfigChange) -> None:
    if change.operation not in (SET, DELETE):
        operation = _LIST_OPERATIONS.get(change.operation)
        text = f"Unknown operation type {change.operation}" if operation is None else f"{operation} operation"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text} is not allowed for the BROKER_LOGGER resource")
    if current_output() is None or change.name not in logger_names():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == DELETE and change.name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
        )
    if change.operation == SET and change.value not in KAFKA_LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {_LEVELS_TEXT}",
        )


def set_loggers(changes: Sequence[ConfigChange]) -> None:
    """Change the levels, which `check_loggers` has checked."""
    output = current_output()
    if output is not None:
        for change in changes:
            output.set_level(change.name, None if change.operation == DELETE else change.value)
