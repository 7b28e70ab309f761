"""UpdateFeatures: levels that may be finalized, and those that may not, in the words of a real 4.4.0."""

from __future__ import annotations

import pytest

from oncelog.broker.metadata import snapshots
from oncelog.broker.metadata.features import OUR_FEATURES
from oncelog.broker.metadata.image import BROKER
from oncelog.broker.metadata.log import DIRECTORY
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from oncelog.wire.stored.metadata import ConfigRecord, FeatureLevelRecord
from tests.harness.metadata_node import DATA_DIR, StandInNode

ELR = "eligible.leader.replicas.version"
TXN = "transaction.version"
GROUP = "group.version"
SHARE = "share.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FAILED = "The update failed for all features since the following feature had an error: Invalid update version"


def update(
    node: StandInNode, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    rows = [FeatureUpdateKey(name, level, False, upgrade_type) for name, level, upgrade_type in updates]
    response: UpdateFeaturesResponse = node.call(UpdateFeaturesRequest(1000, rows, validate_only), version)
    return response


@pytest.fixture
def node() -> StandInNode:
    return StandInNode({"min.insync.replicas": "2"})


def test_levels_of_a_new_cluster(node: StandInNode) -> None:
    epoch, levels = OUR_FEATURES.finalized(node.metadata.image)
    assert epoch == node.metadata.image.offset == 12
    assert levels == {"metadata.version": 33, ELR: 1, TXN: 2, GROUP: 1, SHARE: 2}
    assert OUR_FEATURES.supported == {
        "metadata.version": (30, 33),
        ELR: (0, 1),
        TXN: (0, 2),
        GROUP: (0, 1),
        SHARE: (0, 2),
    }


def test_every_change_of_metadata_raises_the_epoch(node: StandInNode) -> None:
    before, _ = OUR_FEATURES.finalized(node.metadata.image)
    node.metadata.commit([ConfigRecord(BROKER, "", "x", "1")])
    assert OUR_FEATURES.finalized(node.metadata.image)[0] == before + 1


def test_down_and_up_again(node: StandInNode) -> None:
    response = update(node, (ELR, 0, SAFE_DOWNGRADE))
    assert (response.error_code, response.error_message, response.results) == (0, None, [])
    assert node.metadata.image.features == {"metadata.version": 33, TXN: 2, GROUP: 1, SHARE: 2}
    node.metadata.commit(
        [
            ConfigRecord(BROKER, "", "min.insync.replicas", None),
            ConfigRecord(BROKER, "1", "min.insync.replicas", "3"),
            ConfigRecord(BROKER, "1", "log.retention.ms", "3"),
        ]
    )
    node.records.clear()
    assert update(node, (ELR, 1, UPGRADE)).error_code == 0
    assert node.records == [
        ConfigRecord(BROKER, "", "min.insync.replicas", "2"),
        ConfigRecord(BROKER, "1", "min.insync.replicas", None),
        FeatureLevelRecord(ELR, 1),
    ]
    assert OUR_FEATURES.finalized(node.metadata.image)[1] == {
        "metadata.version": 33,
        ELR: 1,
        TXN: 2,
        GROUP: 1,
        SHARE: 2,
    }


def test_no_record_of_a_level_that_was_lowered_is_left(node: StandInNode) -> None:
    """An older release does not start on a log that has a level it does not know, though it was lowered since."""

    def stored() -> list[str]:
        names = node.files.listdir(f"{DATA_DIR}/{DIRECTORY}")
        return sorted(name for name in names if name.endswith((".log", ".checkpoint")))

    assert update(node, (SHARE, 0, SAFE_DOWNGRADE), validate_only=True).error_code == 0
    assert stored() == ["00000000000000000000.log"]
    assert update(node, (SHARE, 0, SAFE_DOWNGRADE)).error_code == 0
    snapshot, segment = stored()
    assert segment == snapshot.partition("-")[0] + ".log" != "00000000000000000000.log"
    records, _ = snapshots.read(node.files, f"{DATA_DIR}/{DIRECTORY}/{snapshot}")
    assert {one.name for one in records if isinstance(one, FeatureLevelRecord)} == {
        "metadata.version",
        ELR,
        TXN,
        GROUP,
    }


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "reason"),
    [
        (
            ELR,
            0,
            UPGRADE,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
        (ELR, 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        (ELR, -1, SAFE_DOWNGRADE, "A feature version cannot be less than 0."),
        (ELR, 1, 0, "The controller does not support the given upgrade type."),
        (ELR, 1, 7, "The controller does not support the given upgrade type."),
        ("metadata.version", 34, UPGRADE, "Local controller 1 only supports versions 30-33"),
        ("metadata.version", 29, UNSAFE_DOWNGRADE, "Local controller 1 only supports versions 30-33"),
        (TXN, 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        (
            TXN,
            1,
            UPGRADE,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        ),
        (GROUP, 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        (SHARE, 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        ("streams.version", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("kraft.version", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("nix", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("nix", 0, UPGRADE, "Feature nix not found."),
    ],
)
def test_refusals(node: StandInNode, name: str, level: int, upgrade_type: int, reason: str) -> None:
    for version in (1, 2):
        for validate_only in (False, True):
            response = update(node, (name, level, upgrade_type), version=version, validate_only=validate_only)
            assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert response.error_message == f"{FAILED} {level} for feature {name}. {reason}"
            assert response.results == []
    assert node.records == []


def test_downgrade_to_a_newer_version(node: StandInNode) -> None:
    update(node, (ELR, 0, SAFE_DOWNGRADE))
    response = update(node, (ELR, 1, SAFE_DOWNGRADE))
    assert response.error_message == f"{FAILED} 1 for feature {ELR}. Can't downgrade to a newer version."


@pytest.mark.parametrize(
    ("upgrade_type", "reason"),
    [
        (
            SAFE_DOWNGRADE,
            "Refusing to perform the requested downgrade because it might delete metadata information.",
        ),
        (UNSAFE_DOWNGRADE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_metadata_of_a_level_is_not_lost(node: StandInNode, upgrade_type: int, reason: str) -> None:
    response = update(node, ("metadata.version", 32, upgrade_type))
    assert response.error_message is not None
    assert response.error_message.endswith(f"Unsupported metadata.version downgrade from 33 to 32. {reason}")


def test_a_level_without_metadata_of_its_own_is_lowered(node: StandInNode) -> None:
    node.metadata.commit([FeatureLevelRecord("metadata.version", 31)])
    assert update(node, ("metadata.version", 30, SAFE_DOWNGRADE)).error_code == 0
    assert node.metadata.image.features["metadata.version"] == 30


def test_all_or_none(node: StandInNode) -> None:
    response = update(node, (ELR, 0, SAFE_DOWNGRADE), ("nix", 1, UPGRADE))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert node.metadata.image.features[ELR] == 1


def test_the_current_level_and_invalid_levels(node: StandInNode) -> None:
    assert update(node, (ELR, 1, UPGRADE), ("metadata.version", 33, UPGRADE)).error_code == 0
    node.records.clear()
    assert update(node, ("kraft.version", 0, UPGRADE)).error_code == 0
    assert update(node, ("streams.version", 0, UPGRADE)).error_code == 0
    assert update(node).error_code == 0
    assert OUR_FEATURES.finalized(node.metadata.image)[1] == {
        "metadata.version": 33,
        ELR: 1,
        TXN: 2,
        GROUP: 1,
        SHARE: 2,
    }


def test_rows_per_feature_before_version_2(node: StandInNode) -> None:
    [row] = update(node, (ELR, 0, SAFE_DOWNGRADE), version=1, validate_only=True).results
    assert (row.feature, row.error_code, row.error_message) == (ELR, 0, "NONE")
    assert node.records == []


def test_version_0_only_ever_upgrades(node: StandInNode) -> None:
    request = UpdateFeaturesRequest(1000, [FeatureUpdateKey(ELR, 0, True)])
    assert node.call(request, 0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    [row] = node.call(UpdateFeaturesRequest(1000, [FeatureUpdateKey(ELR, 1)]), 0).results
    assert (row.feature, row.error_code) == (ELR, 0)
