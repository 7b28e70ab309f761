"""`ShareGroupSettings`: the settings of a share group: its own, else the broker's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.group_config import (
    DLQ_COPY_RECORD_ENABLE,
    DLQ_TOPIC_NAME,
    GroupConfig,
    within_limits,
)
from oncelog.broker.share.window.window import Limits

READ_COMMITTED = "read_committed"
EARLIEST, LATEST = "earliest", "latest"
_DURATION = re.compile(
    r"\+?P(?:\+?(\d+)D)?(?:T(?:\+?(\d+)H)?(?:\+?(\d+)M)?(?:\+?(\d+(?:[.,]\d*)?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_MS = (86_400_000, 3_600_000, 60_000, 1_000)


class ShareGroupSettings(NamedTuple):
    """The settings of one share group."""

    limits: Limits
    lock_ms: int
    """Milliseconds for which acquired records are locked (``share.record.lock.duration.ms``)."""
    reads_committed: bool
    """Whether records of transactions are delivered only when these are committed (``share.isolation.level``)."""
    reset: str
    """The position at which a new share partition begins (``share.auto.offset.reset``)."""
    dead_letter_topic: str = ""
    """The dead-letter queue; empty for none (``errors.deadletterqueue.topic.name``)."""
    copies_dead_letters: bool = False
    """Whether its records have the original's key and value (``errors.deadletterqueue.copy.record.enable``)."""


def settings_of(
    overrides: Mapping[str, str], broker: BrokerConfig, *, may_have_queue: bool
) -> ShareGroupSettings:
    """Return the settings of a group with these overrides, within the broker's limits. ``may_have_queue``: the
    cluster's ``share.version`` has dead-letter queues.
    """
    overrides = within_limits(overrides, broker)

    def own(name: str, default: Any) -> Any:
        return GroupConfig.KEYS[name].parse(overrides[name]) if name in overrides else default

    def of_group(name: str) -> Any:
        return own(name, GroupConfig.KEYS[name].default)

    return ShareGroupSettings(
        Limits(
            own("share.partition.max.record.locks", broker.group_share_partition_max_record_locks),
            own("share.delivery.count.limit", broker.group_share_delivery_count_limit),
            of_group("share.renew.acknowledge.enable"),
            may_have_queue and bool(of_group(DLQ_TOPIC_NAME)),
        ),
        own("share.record.lock.duration.ms", broker.group_share_record_lock_duration_ms),
        of_group("share.isolation.level") == READ_COMMITTED,
        of_group("share.auto.offset.reset"),
        of_group(DLQ_TOPIC_NAME),
        of_group(DLQ_COPY_RECORD_ENABLE),
    )


def duration_ms(reset: str) -> int:
    """Return the milliseconds of ``by_duration:`` and a duration as ISO 8601 writes it."""
    match = _DURATION.fullmatch(reset.partition(":")[2])
    assert match is not None, reset
    parts = zip(match.groups(default="0"), _MS, strict=True)
    return sum(int(float(text.replace(",", ".")) * ms) for text, ms in parts)
