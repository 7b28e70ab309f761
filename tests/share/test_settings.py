"""What the configuration of a share group means."""

from __future__ import annotations

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.share.settings import settings_of

LOCK, LOCKS, DELIVERIES = (
    "share.record.lock.duration.ms",
    "share.partition.max.record.locks",
    "share.delivery.count.limit",
)


def test_what_a_group_sets_goes_before_the_brokers_settings() -> None:
    broker = BrokerConfig({"group.share.record.lock.duration.ms": "20000"})
    nothing = settings_of({}, broker, may_have_queue=False)
    assert (nothing.lock_ms, nothing.limits.records_max, nothing.limits.deliveries_max) == (20_000, 2_000, 5)
    own = settings_of({LOCK: "40000", LOCKS: "300", DELIVERIES: "7"}, broker, may_have_queue=False)
    assert (own.lock_ms, own.limits.records_max, own.limits.deliveries_max) == (40_000, 300, 7)


def test_what_the_brokers_limits_no_longer_allow_counts_as_the_nearest_value() -> None:
    high = BrokerConfig(
        {
            "group.share.max.record.lock.duration.ms": "40000",
            "group.share.max.partition.max.record.locks": "2000",
            "group.share.max.delivery.count.limit": "5",
        }
    )
    found = settings_of({LOCK: "50000", LOCKS: "4000", DELIVERIES: "10"}, high, may_have_queue=False)
    assert (found.lock_ms, found.limits.records_max, found.limits.deliveries_max) == (40_000, 2_000, 5)
    low = BrokerConfig(
        {
            "group.share.min.record.lock.duration.ms": "20000",
            "group.share.min.partition.max.record.locks": "200",
            "group.share.min.delivery.count.limit": "3",
        }
    )
    found = settings_of({LOCK: "15000", LOCKS: "100", DELIVERIES: "2"}, low, may_have_queue=False)
    assert (found.lock_ms, found.limits.records_max, found.limits.deliveries_max) == (20_000, 200, 3)
