"""The dynamic configuration of groups (ConfigResource type GROUP): its keys and their checks.

Keys, defaults and error messages are those of ``org.apache.kafka.coordinator.group.GroupConfig`` of Kafka 4.4.0. The
keys of streams groups are checked, stored and shown, but have no effect: there are no such groups here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    LOW,
    STRING,
    ConfigError,
    ConfigKey,
    ConfigType,
    KeyCollector,
    Value,
    key,
)
from oncelog.broker.config.definitions_coordinators import ASSIGNOR_OFFLOAD
from oncelog.wire.errors import ErrorCode, KafkaError

_BY_DURATION = "by_duration:"
_ISO_DURATION = r"\+?P(?=[^T]|T.)(?:\+?\d+D)?(?:T(?=.)(?:\+?\d+H)?(?:\+?\d+M)?(?:\+?\d+(?:[.,]\d{0,9})?S)?)?"


def _check_offset_reset(name: str, value: str) -> None:
    """``ShareGroupAutoOffsetResetStrategy.Validator``."""
    if value in ("earliest", "latest"):
        return
    if value.startswith(_BY_DURATION):
        import re

        if re.fullmatch(_ISO_DURATION, value.removeprefix(_BY_DURATION), re.IGNORECASE | re.ASCII):
            return
    raise ConfigError(
        f"Invalid value {value} for configuration {name}: Invalid value `{value}` for configuration {name}. "
        "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _key(default: int, documentation: str, synonym: str, **options: Any) -> Any:
    """Declare an integer key whose default is the value of the broker's key ``synonym``."""
    return key(INT, default, documentation, synonyms=((synonym, 1),), **options)


def _internal(value_type: ConfigType, default: Value, synonym: str, at_least: int | None = None) -> Any:
    """Declare a key that is without effect here, and internal in Kafka: shown only if it is set."""
    doc = "An internal key of Kafka's; without effect here."
    synonyms = ((synonym, 1),)
    return key(value_type, default, doc, synonyms=synonyms, at_least=at_least, internal=True, in_effect=False)


def _assignor_offload(synonym: str) -> Any:
    return key(BOOLEAN, True, ASSIGNOR_OFFLOAD, synonyms=((synonym, 1),), internal=True)


class GroupConfig(metaclass=KeyCollector):
    """The keys in Kafka's order. If several values are invalid, the first in this order is reported."""

    __slots__ = ()
    KEYS: Mapping[str, ConfigKey]

    consumer_session_timeout_ms: int = _key(
        45_000,
        "Milliseconds without a heartbeat after which a member is removed.",
        "group.consumer.session.timeout.ms",
        at_least=1,
    )
    consumer_heartbeat_interval_ms: int = _key(
        5_000,
        "Milliseconds between two heartbeats of a member.",
        "group.consumer.heartbeat.interval.ms",
        at_least=1,
    )
    consumer_assignment_interval_ms: int = _key(
        1_000,
        "Milliseconds between two new assignments of the group.",
        "group.consumer.assignment.interval.ms",
        at_least=0,
    )
    share_session_timeout_ms: int = _key(
        45_000,
        "Milliseconds without a heartbeat after which a member of the share group is removed.",
        "group.share.session.timeout.ms",
        at_least=1,
    )
    share_heartbeat_interval_ms: int = _key(
        5_000,
        "Milliseconds between two heartbeats of a member of the share group.",
        "group.share.heartbeat.interval.ms",
        at_least=1,
    )
    share_record_lock_duration_ms: int = _key(
        30_000,
        "Milliseconds after which a record that no consumer has acknowledged is delivered again.",
        "group.share.record.lock.duration.ms",
        at_least=1000,
    )
    share_delivery_count_limit: int = _key(
        5,
        "The most deliveries of a record.",
        "group.share.delivery.count.limit",
        at_least=2,
    )
    share_partition_max_record_locks: int = _key(
        2_000,
        "The most records of a partition that consumers hold at the same time.",
        "group.share.partition.max.record.locks",
        at_least=100,
    )
    share_auto_offset_reset: str = key(
        STRING,
        "latest",
        "Where the group begins to read a partition.",
        check=_check_offset_reset,
    )
    share_isolation_level: str = key(
        STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are delivered.",
        choices=("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable: bool = key(
        BOOLEAN, True, "Whether consumers may renew the locks of records."
    )
    share_assignment_interval_ms: int = _key(
        1_000,
        "Milliseconds between two new assignments of the share group.",
        "group.share.assignment.interval.ms",
        at_least=0,
    )
    streams_session_timeout_ms: int = _key(
        45_000,
        "For streams groups; without effect here.",
        "group.streams.session.timeout.ms",
        at_least=1,
        in_effect=False,
    )
    streams_heartbeat_interval_ms: int = _key(
        5_000,
        "For streams groups; without effect here.",
        "group.streams.heartbeat.interval.ms",
        at_least=1,
        in_effect=False,
    )
    streams_num_standby_replicas: int = _key(
        0,
        "For streams groups; without effect here.",
        "group.streams.num.standby.replicas",
        at_least=0,
        in_effect=False,
    )
    streams_initial_rebalance_delay_ms: int = _key(
        3_000,
        "For streams groups; without effect here.",
        "group.streams.initial.rebalance.delay.ms",
        at_least=0,
        in_effect=False,
    )
    streams_assignment_interval_ms: int = _key(
        1_000,
        "For streams groups; without effect here.",
        "group.streams.assignment.interval.ms",
        at_least=0,
        in_effect=False,
    )
    streams_rack_aware_assignment_tags: tuple[str, ...] = key(
        LIST,
        (),
        "For streams groups; without effect here.",
        synonyms=(("group.streams.rack.aware.assignment.tags", 1),),
        importance=LOW,
        in_effect=False,
    )
    streams_assignor_name: str | None = key(
        STRING,
        None,
        "For streams groups; without effect here.",
        synonyms=(("group.streams.assignors", 1),),
        in_effect=False,
    )
    consumer_assignor_offload_enable: bool = _assignor_offload("group.consumer.assignor.offload.enable")
    share_assignor_offload_enable: bool = _assignor_offload("group.share.assignor.offload.enable")
    streams_assignor_offload_enable: bool = _internal(BOOLEAN, True, "group.streams.assignor.offload.enable")
    streams_task_offset_interval_ms: int = _internal(INT, 60_000, "group.streams.task.offset.interval.ms", 1)
    streams_num_warmup_replicas: int = _internal(INT, 2, "group.streams.num.warmup.replicas", 0)
    streams_acceptable_recovery_lag: int = _internal(LONG, 10_000, "group.streams.acceptable.recovery.lag", 0)
    errors_deadletterqueue_topic_name: str = key(
        STRING,
        "",
        "The topic that gets the share group's records that no consumer could process; empty: none.",
    )
    errors_deadletterqueue_copy_record_enable: bool = key(
        BOOLEAN, False, "Whether records in the dead-letter queue have the original's key and value."
    )


# Keys that the broker's configuration limits, in the order in which Kafka checks them.
_LIMITED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
    "streams.task.offset.interval.ms",
    "streams.num.warmup.replicas",
)


def _limits(name: str) -> tuple[str | None, str | None]:
    """Return the names of the broker's keys for the smallest and the largest value that a group may set; None: any."""
    kind, _, what = name.partition(".")
    if what.startswith("num."):
        return None, f"group.{kind}.max.{what.removeprefix('num.')}"
    if what == "task.offset.interval.ms":
        return f"group.{kind}.min.{what}", None
    return f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"


DLQ_TOPIC_NAME = "errors.deadletterqueue.topic.name"
DLQ_COPY_RECORD_ENABLE = "errors.deadletterqueue.copy.record.enable"
LIMITS = {name: _limits(name) for name in _LIMITED}
_SESSIONS_AND_HEARTBEATS = tuple(
    (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
    for kind in ("consumer", "share", "streams")
)


def defaults_of(broker: BrokerConfig) -> dict[str, Value]:
    """Return the values for a group without overrides, by key."""
    defaults = {
        name: broker.value(found.synonyms[0][0]) if found.synonyms else found.default
        for name, found in GroupConfig.KEYS.items()
    }
    defaults["streams.assignor.name"] = next(iter(broker.group_streams_assignors), None)
    return defaults


def within_limits(overrides: Mapping[str, str], broker: BrokerConfig) -> Mapping[str, str]:
    """Return a group's own settings as they count: one that the broker's limits do not allow is the nearest one that
    they do (``GroupConfig.evaluate``). It was checked when it was set, but the limits may have changed since.
    """
    moved = {name: str(broker.value(limit)) for name, limit in beyond_limits(overrides, broker)}
    return {**overrides, **moved} if moved else overrides


def beyond_limits(overrides: Mapping[str, str], broker: BrokerConfig) -> list[tuple[str, str]]:
    """Return the keys of a group's own settings that the broker's limits do not allow, each with the broker's key of
    the limit.
    """
    found = []
    for name, text in overrides.items():
        if name in LIMITS:
            value: Any = int(text)
            least, most = LIMITS[name]
            if least is not None and value < broker.value(least):
                found.append((name, least))
            elif most is not None and value > broker.value(most):
                found.append((name, most))
    return found


def parse_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """Return the values of all keys for a group with these overrides. Raises KafkaError (INVALID_CONFIG)."""
    for name in overrides:
        if name not in GroupConfig.KEYS:
            raise _refused(f"Unknown group config name: {name}")
    values = defaults_of(broker)
    try:
        for name, found in GroupConfig.KEYS.items():
            if name in overrides:
                values[name] = found.parse(overrides[name])
    except ConfigError as error:
        raise _refused(str(error)) from None
    _check_values(values, overrides, broker)
    return values


def _check_values(values: Mapping[str, Any], overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise KafkaError (INVALID_CONFIG) for a group's own value that is refused (``GroupConfig.validateValues``)."""
    for name, (least, most) in LIMITS.items():
        if name not in overrides:
            continue
        low = None if least is None else broker.value(least)
        high = None if most is None else broker.value(most)
        value = values[name]
        if low is None:
            if value > high:
                raise _refused(f"{name} must be less than or equal to {high}")
        elif high is None:
            if value < low:
                raise _refused(f"{name} must be greater than or equal to {low}")
        elif not low <= value <= high:
            raise _refused(f"{name} must be in the range {low} to {high} inclusive.")
    assignor, known = values["streams.assignor.name"], broker.group_streams_assignors
    if "streams.assignor.name" in overrides and assignor not in known:
        raise _refused(
            f"streams.assignor.name '{assignor}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(known)}]."
        )
    for longer, shorter in _SESSIONS_AND_HEARTBEATS:
        if values[longer] <= values[shorter] and (longer in overrides or shorter in overrides):
            raise _refused(f"{longer} must be greater than {shorter}")
    if values[DLQ_TOPIC_NAME].startswith("__"):
        raise _refused(f"{DLQ_TOPIC_NAME}: DLQ topic name must not start with '__'")


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
