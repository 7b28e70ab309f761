"""``Broker(version=...)`` beside a real broker of that release: the same API versions and features, as far as oncelog
serves them, and the same answer to a request that is out of range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import oncelog
from oncelog.broker.emulation import kafka_releases as facts
from oncelog.broker.handlers.table import HANDLERS, TELEMETRY_KEYS
from tests.common import facts as kafkas
from tests.common.frames import CLOSED, Connection
from tests.common.real_kafka import RealKafka, RealPartMissing, require

KAFKA_APIS = {"3.9": "3.9.2", "4.0": "4.0.2", "4.1": "4.1.2", "4.2": "4.2.1", "4.3": kafkas.OLDER}
SOFTWARE = {"client_software_name": "frames", "client_software_version": "1.0"}
NOT_SERVED = ("kraft.version", "streams.version")
API_VERSIONS = 18
NONE = (0, -1)
"""The versions of an API that a release does not have."""


class Release(NamedTuple):
    """A real broker of a release, and ours that presents itself as one."""

    version: str
    kafka: str
    ours: str


@pytest.fixture(scope="module", params=facts.RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[Release]:
    try:
        real = RealKafka(version=KAFKA_APIS[request.param])
        with real, oncelog.Broker(version=request.param) as broker:
            yield Release(request.param, real.bootstrap, broker.bootstrap_servers)
    except RealPartMissing as missing:
        require(str(missing))


def api_versions(bootstrap: str, version: int = 4) -> Any:
    with Connection(bootstrap) as connection:
        return connection.call("ApiVersions", version, SOFTWARE)


def ranges(bootstrap: str) -> dict[int, tuple[int, int]]:
    rows = api_versions(bootstrap)["api_keys"]
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows}


def finalized(bootstrap: str) -> dict[str, int]:
    return {row["name"]: row["max_version_level"] for row in api_versions(bootstrap)["finalized_features"]}


def supported(bootstrap: str, version: int = 4) -> dict[str, tuple[int, int]]:
    rows = api_versions(bootstrap, version)["supported_features"]
    return {row["name"]: (row["min_version"], row["max_version"]) for row in rows}


def test_the_facts_are_kafkas(release: Release) -> None:
    column = facts.RELEASES.index(release.version)
    known = {key: rows[column] for key, rows in facts.API_VERSIONS.items() if rows[column] is not None}
    assert ranges(release.kafka) == known
    level = facts.METADATA_VERSIONS[release.version]
    assert finalized(release.kafka) == {
        "metadata.version": level,
        **facts.FINALIZED_FEATURES[release.version],
    }
    features = supported(release.kafka)
    assert features.pop("metadata.version")[1] == level
    assert features.pop("kraft.version") == (0, 1)
    assert features == facts.SUPPORTED_FEATURES[release.version]


def test_ours_is_the_part_of_kafkas_that_oncelog_serves(release: Release) -> None:
    kafka, ours = ranges(release.kafka), ranges(release.ours)
    assert ours.keys() == kafka.keys() & HANDLERS.keys()
    for key, (low, high) in kafka.items():
        if (handler := HANDLERS.get(key)) is not None:
            assert ours[key] == (max(low, handler.announced_min), min(high, handler.max_version))
    served = {name: level for name, level in finalized(release.kafka).items() if name not in NOT_SERVED}
    assert finalized(release.ours) == served
    for version in (3, 4):
        theirs, announced = supported(release.kafka, version), supported(release.ours, version)
        assert announced.pop("metadata.version")[1] == theirs.pop("metadata.version")[1]
        assert announced == {name: row for name, row in theirs.items() if name not in NOT_SERVED}


def test_a_version_that_is_not_served_closes_the_connection(release: Release) -> None:
    kafka = ranges(release.kafka)
    newer = {
        key: row.max_version
        for key, row in HANDLERS.items()
        if row.max_version > kafka.get(key, NONE)[1]
        and key not in TELEMETRY_KEYS  # Kafka serves them unannounced
        and key != API_VERSIONS  # which is answered, see below
    }
    assert newer
    for key, version in newer.items():
        for bootstrap in (release.kafka, release.ours):
            with Connection(bootstrap) as connection:
                connection.send_frame(connection.header(key, version, flexible=True) + bytes(64))
                assert connection.receive_frame() is None, (key, version)


def test_api_versions_of_an_unknown_version(release: Release) -> None:
    for version in (ranges(release.kafka)[API_VERSIONS][1] + 1, 99):
        frames = []
        for bootstrap in (release.kafka, release.ours):
            with Connection(bootstrap) as connection:
                connection.send_frame(connection.header(API_VERSIONS, version, flexible=True) + b"\2x\2y\0")
                frames.append(connection.receive_frame())
        assert frames[0] == frames[1], version


def test_groups_of_the_consumer_protocol(release: Release) -> None:
    """A release without ``group.version`` 1 serves none, though it has the API."""
    heartbeat = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    errors = []
    for bootstrap in (release.kafka, release.ours):
        with Connection(bootstrap) as connection:
            coordinator = {"key_type": 0, "coordinator_keys": ["g"]}
            connection.call("FindCoordinator", 4, coordinator)
            response = connection.call("ConsumerGroupHeartbeat", 0, heartbeat)
            assert response != CLOSED
            errors.append(response["error_code"])
    if release.version == "3.9":
        assert errors == [35, 35]
    else:
        assert errors[1] == 0
