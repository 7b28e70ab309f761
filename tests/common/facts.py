"""What the Kafka that the tests compare with has (`kafka_version`), and other releases have not.

A test asks for a fact by its name. So a run against another release, with ``ONCELOG_KAFKA_VERSION=4.3.1``, leaves out
what that release does not have, and shows whether a difference is one of the release or one of oncelog.
"""

import pytest

from tests.common.jars import kafka_version, release

IS_4_4 = release() >= (4, 4)

OLDER = "4.3.1"
"""The last version of the release before 4.4: directories come from it and go back to it."""
AS_RELEASE = () if IS_4_4 else ("--as-version", "4.3")
"""The options with which oncelog announces what such a Kafka does: else every request would take another path."""
LATER_KEYS = frozenset(
    ()
    if IS_4_4
    else (
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.group.enable",
        "errors.deadletterqueue.topic.name",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "streams.assignor.name",
        "streams.rack.aware.assignment.tags",
    )
)
"""Keys of topics and groups that oncelog has and the release has not: a comparison leaves them out."""

METADATA_VERSION = 33 if IS_4_4 else 30
"""The level of ``metadata.version`` at format."""
METADATA_VERSION_NAME = "4.4-IV2" if IS_4_4 else "4.3-IV0"
SHARE_VERSION = 2 if IS_4_4 else 1
"""The level of ``share.version`` at format."""
LEVELS = {
    "metadata.version": METADATA_VERSION,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": SHARE_VERSION,
    "streams.version": 1,
    "transaction.version": 2,
}
"""What kafka-storage finalizes by default."""

HAS_DEAD_LETTER_QUEUES = IS_4_4
"""Of share groups (KIP-1191)."""
HAS_NETWORKS_IN_ACLS = IS_4_4
HAS_TOPIC_IDS_IN_TXN_OFFSET_COMMIT = IS_4_4
"""TxnOffsetCommit 6 (KIP-1319)."""
CHECKS_CLUSTER_OF_CLIENT = IS_4_4
"""ApiVersions 5 (KIP-1242)."""
LIMITS_DECOMPRESSED_RECORDS = IS_4_4
"""``max.decompressed.message.bytes``."""
REFUSES_INFINITE_QUOTAS = IS_4_4
REQUIRES_ISSUER_AND_AUDIENCE = IS_4_4
"""Of signed tokens, unless a key waives it."""
WAIVES_AUDIENCES = IS_4_4
"""A broker that expects no audience of signed tokens takes any; before, it refused tokens with one."""
LIMITS_NEW_PARTITIONS = IS_4_4
"""CreatePartitions, to 10,000 of a request."""
CHECKS_CORDONED_ASSIGNMENTS = IS_4_4
"""A request that assigns replicas may not name a broker whose directories are all cordoned."""
HAS_KEYS_OF_4_4 = IS_4_4
"""The keys of brokers, topics and groups are those that oncelog has."""
HAS_STREAMS_TASK_OFFSETS = IS_4_4
"""Keys of streams groups for their tasks' offsets and warm-up tasks."""
FORMATS_WITHOUT_BOOTSTRAP_CHECKPOINT = IS_4_4
"""kafka-storage writes the first records into the metadata log's directory."""


def needs(fact: bool, what: str) -> pytest.MarkDecorator:
    """Mark tests, a module of them or one, that need a fact: others skip them, and say that Kafka has no ``what``."""
    return pytest.mark.skipif(not fact, reason=f"Kafka {kafka_version()} has no {what}")
