"""Features: levels that a cluster agrees on, to switch on formats and protocols (KIP-584, KIP-778).

The supported levels are in `Features`; the finalized ones are in the metadata image, whose offset is their epoch.
Source: Kafka's ``FeatureControlManager``, ``QuorumFeatures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.metadata.image import (
    BROKER,
    ELR_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    MetadataImage,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import Message
from oncelog.wire.stored.metadata import (
    BeginTransactionRecord,
    BrokerFeature,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

METADATA_VERSION_4_3_IV0, METADATA_VERSION_4_4_IV1, METADATA_VERSION_4_4_IV2 = 30, 32, 33
"""Levels of ``metadata.version``. No record has another version at one of them than at another."""
_METADATA_CHANGED = frozenset((METADATA_VERSION_4_4_IV1, METADATA_VERSION_4_4_IV2))
"""Levels with records that those below do not know: what they hold cannot be lowered again."""
MIN_INSYNC_REPLICAS = "min.insync.replicas"

_KEPT: dict[str, tuple[int, int]] = {"streams.version": (0, 1)}
"""Features that Kafka finalizes when it formats a directory, and that only concern requests which oncelog does not
serve. Their levels are kept, for a Kafka that takes the directory over, and not announced.
"""

# Voters that change while the quorum runs (level 1) need a quorum, and Kafka lists no feature whose only level is 0.
KRAFT_VERSION = "kraft.version"
_KAFKAS_OTHERS = frozenset({KRAFT_VERSION, "streams.version"})

# Upgrade types of UpdateFeatures (``FeatureUpdate.UpgradeType``); anything else is refused.
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class Features(NamedTuple):
    """The features of a broker.

    ``supported`` has the lowest and the highest level that can be finalized. ``at_format`` are the levels of a new data
    directory, as kafka-storage finalizes them; features that are not supported (yet) are left out. Both announce a
    ``metadata.version`` of the emulated release, whose data directories have `METADATA_VERSION_4_3_IV0`.
    """

    supported: Mapping[str, tuple[int, int]]
    at_format: Mapping[str, int]
    emulates: str = ""
    """The emulated release, for errors."""

    def finalized(self, image: MetadataImage) -> tuple[int, dict[str, int]]:
        """Return the epoch (the offset of the last metadata record), and the level of each supported feature that is
        finalized.
        """
        return image.offset, {
            name: self._level(image, name) for name in image.features if name in self.supported
        }

    def _level(self, image: MetadataImage, name: str) -> int:
        if name == METADATA_VERSION and self.emulates:
            return self.at_format[name]
        return image.features.get(name, 0)

    def check(self, image: MetadataImage) -> None:
        """Raise KafkaError (UNSUPPORTED_VERSION) if the image has a feature at an unsupported level."""
        supported = {**_KEPT, **self.supported}
        if self.emulates:
            supported[METADATA_VERSION] = (METADATA_VERSION_4_3_IV0, METADATA_VERSION_4_3_IV0)
        for name, level in image.features.items():
            low, high = supported.get(name, (0, 0))
            if not low <= level <= high:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the data directory needs {name} at level {level}; supported are {low} to {high}"
                    + self._advice(name, level, low),
                )

    def _advice(self, name: str, level: int, low: int) -> str:
        """Return what to do about the level of a data directory that is not supported."""
        where = f" in version {self.emulates}" if self.emulates else ""
        least, most = OUR_FEATURES.supported.get(name, _KEPT.get(name, (0, 0)))
        if self.emulates and least <= level <= most:
            return f"{where}: leave the version out"
        if level < low:
            return f"{where}: start Kafka on it, and raise the level (kafka-features upgrade --feature {name}={low})"
        if name == METADATA_VERSION:
            return f"{where}: a later release wrote it, and this level cannot be lowered; use that release"
        return (
            f"{where}: use the release that wrote it, or lower the level with it (kafka-features downgrade)"
        )

    def stored_at_format(self) -> dict[str, int]:
        """Return the levels of a new data directory as its records have them."""
        return (
            {**self.at_format, METADATA_VERSION: METADATA_VERSION_4_3_IV0}
            if self.emulates
            else {**self.at_format}
        )

    def update(
        self,
        image: MetadataImage,
        node_id: int,
        updates: list[tuple[str, int, int]],
        min_insync_replicas: int,
    ) -> list[Message]:
        """Return the records that finalize each (feature, level, upgrade type).

        Raises KafkaError (INVALID_UPDATE_VERSION) for the first one that is refused.
        """
        records: list[Message] = []
        for name, level, upgrade_type in updates:
            reason = self._refusal(image, node_id, name, level, upgrade_type)
            if reason:
                raise KafkaError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"Invalid update version {level} for feature {name}. {reason}",
                )
            if name == METADATA_VERSION and not self.emulates:
                _check_downgrade(self._level(image, name), level, upgrade_type)
            if name == ELR_VERSION and level > 0:
                records[:0] = _elr_safety_records(image, min_insync_replicas)
            if name == METADATA_VERSION and self.emulates:
                records.append(FeatureLevelRecord(name=name, feature_level=METADATA_VERSION_4_3_IV0))
            elif name != KRAFT_VERSION:
                records.append(FeatureLevelRecord(name=name, feature_level=level))
        return records

    def _refusal(self, image: MetadataImage, node_id: int, name: str, level: int, upgrade_type: int) -> str:
        """Return why a level cannot be finalized, in Kafka's words, or an empty text."""
        if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        low, high = self.supported.get(name, (0, 0))
        if not low <= level <= high:
            if high == 0:
                return f"Local controller {node_id} does not support this feature."
            return f"Local controller {node_id} only supports versions {low}" + (
                f"-{high}" if high > low else ""
            )
        current = self._level(image, name)
        if level < current and upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if level > current and upgrade_type != UPGRADE:
            return "Can't downgrade to a newer version."
        return "" if name in self.supported or name in _KAFKAS_OTHERS else f"Feature {name} not found."


OUR_FEATURES = Features(
    supported={
        METADATA_VERSION: (METADATA_VERSION_4_3_IV0, METADATA_VERSION_4_4_IV2),
        ELR_VERSION: (0, 1),
        TRANSACTION_VERSION: (0, 2),
        # 1: groups of the consumer protocol (KIP-848).
        GROUP_VERSION: (0, 1),
        # 1: share groups (KIP-932); 2: their dead-letter queues (KIP-1191).
        SHARE_VERSION: (0, 2),
    },
    at_format={
        METADATA_VERSION: METADATA_VERSION_4_4_IV2,
        ELR_VERSION: 1,
        GROUP_VERSION: 1,
        SHARE_VERSION: 2,
        TRANSACTION_VERSION: 2,
    },
)
"""All that oncelog supports, and what a directory of Kafka 4.4 has."""


def _check_downgrade(current: int, level: int, upgrade_type: int) -> None:
    """Raise KafkaError if records of a level between may be stored.

    Source: ``FeatureControlManager.updateMetadataVersion``.
    """
    if _METADATA_CHANGED.intersection(range(level + 1, current + 1)):
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if upgrade_type == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )


def are_networks_enabled(image: MetadataImage) -> bool:
    """Whether the host of an ACL may be a network (Kafka: ``MetadataVersion.isCidrAclSupported``)."""
    return image.features.get(METADATA_VERSION, 0) >= METADATA_VERSION_4_4_IV1


def is_consumer_protocol_enabled(image: MetadataImage, config: BrokerConfig) -> bool:
    """Whether groups of the consumer protocol are served. A data directory older than ``group.version`` has it at 0
    until it is upgraded, as in Kafka.
    """
    served = "consumer" in config.group_coordinator_rebalance_protocols
    return served and image.features.get(GROUP_VERSION, 0) > 0


def are_share_groups_enabled(image: MetadataImage) -> bool:
    """Whether share groups are served (Kafka: ``ShareVersion.supportsShareGroups``)."""
    return image.features.get(SHARE_VERSION, 0) > 0


def are_dead_letter_queues_enabled(image: MetadataImage) -> bool:
    """Whether share groups may have a dead-letter queue (Kafka: ``ShareVersion.supportsShareGroupDLQ``)."""
    return image.features.get(SHARE_VERSION, 0) > 1


def broker_features() -> list[BrokerFeature]:
    """Return the supported levels as a broker's registration has them."""
    return [BrokerFeature(name, low, high) for name, (low, high) in OUR_FEATURES.supported.items()]


def bootstrap_records(levels: Mapping[str, int]) -> list[Message]:
    """Return the records of a new ``bootstrap.checkpoint``: only the levels."""
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


def format_records(
    levels: Mapping[str, int], min_insync_replicas: int, others: Iterable[Message] = ()
) -> list[Message]:
    """Return the first records of a new cluster, one metadata transaction as Kafka's first controller writes it.

    ``min_insync_replicas`` is the broker's static setting. It becomes the cluster's if ELR is enabled. ``others`` are
    the records of ``bootstrap.checkpoint`` besides the levels.
    """
    image = MetadataImage()
    return [
        BeginTransactionRecord(name="Bootstrap records"),
        *(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()),
        *others,
        *(_elr_safety_records(image, min_insync_replicas) if levels.get(ELR_VERSION) else ()),
        EndTransactionRecord(),
    ]


def _elr_safety_records(image: MetadataImage, min_insync_replicas: int) -> list[Message]:
    """Return the records that set ``min.insync.replicas`` for the whole cluster and remove it from single brokers, as
    ELR needs it."""
    records: list[Message] = []
    if MIN_INSYNC_REPLICAS not in image.configs.get((BROKER, ""), {}):
        records.append(ConfigRecord(BROKER, "", MIN_INSYNC_REPLICAS, str(min_insync_replicas)))
    for (resource_type, resource_name), overrides in image.configs.items():
        if resource_type == BROKER and resource_name and MIN_INSYNC_REPLICAS in overrides:
            records.append(ConfigRecord(BROKER, resource_name, MIN_INSYNC_REPLICAS, None))
    return records
