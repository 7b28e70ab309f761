"""The topics that Kafka itself uses. Source: ``org.apache.kafka.common.internals.Topic``."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""Its one partition is the metadata log. No client sees this topic."""

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Topics that clients may read and not write."""
