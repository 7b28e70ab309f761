"""Registrations, heartbeats and sessions."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.controller.registrations import BrokerState, Sessions
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from oncelog.wire.stored.metadata import RegisterBrokerRecord
from tests.controller.decided_cluster import (
    CLUSTER_ID,
    FEATURES,
    HEARTBEAT_VERSION,
    SESSION_TIMEOUT_S,
    DecidedCluster,
    Outcome,
    directory_id,
    fenced,
)

FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW = BrokerState


@pytest.fixture
def cluster() -> DecidedCluster:
    """Brokers 1 and 2 serve; 1 leads a partition, 2 none."""
    cluster = DecidedCluster()
    cluster.brokers(1, 2)
    cluster.topic("t", [1, 2])
    return cluster


def told(outcome: Outcome) -> tuple[bool, bool, bool]:
    """What a heartbeat's response says: caught up, fenced, shall shut down."""
    assert outcome.response is not None, outcome
    found = BrokerHeartbeatResponse.decode(outcome.response, HEARTBEAT_VERSION)
    return found.is_caught_up, found.is_fenced, found.should_shut_down


def registered(outcome: Outcome) -> RegisterBrokerRecord:
    [found] = [
        RegisterBrokerRecord.decode(data, version) for key, version, data in outcome.records if key == 0
    ]
    return found


# --- heartbeats

BEHIND: dict[str, Any] = {"offset": 1}


def next_state(cluster: DecidedCluster, broker_id: int, **beat: Any) -> BrokerState:
    _, is_fenced, shall_stop = told(cluster.beat(broker_id, **beat))
    state = cluster.sessions.state_of(cluster.image, broker_id)
    assert is_fenced == cluster.image.brokers[broker_id].fenced
    assert not shall_stop or state is FENCED
    return SHUTDOWN_NOW if shall_stop else state


@pytest.mark.parametrize(
    ("wants", "caught_up", "behind"),
    [
        ({}, UNFENCED, FENCED),
        ({"fence": True}, FENCED, FENCED),
        ({"shut_down": True}, SHUTDOWN_NOW, SHUTDOWN_NOW),
        ({"fence": True, "shut_down": True}, SHUTDOWN_NOW, SHUTDOWN_NOW),
    ],
)
def test_a_fenced_broker(
    cluster: DecidedCluster, wants: dict[str, bool], caught_up: BrokerState, behind: BrokerState
) -> None:
    cluster.register(3)
    assert next_state(cluster, 3, **BEHIND, **wants) is behind
    assert next_state(cluster, 3, **wants) is caught_up


@pytest.mark.parametrize(
    ("wants", "as_leader", "as_follower"),
    [
        ({}, UNFENCED, UNFENCED),
        ({"fence": True}, FENCED, FENCED),
        ({"shut_down": True}, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW),
        ({"fence": True, "shut_down": True}, SHUTDOWN_NOW, SHUTDOWN_NOW),
    ],
)
def test_an_unfenced_broker(
    cluster: DecidedCluster, wants: dict[str, bool], as_leader: BrokerState, as_follower: BrokerState
) -> None:
    assert next_state(cluster, 2, **wants) is as_follower
    assert next_state(cluster, 1, **wants) is as_leader


def test_a_broker_serves_once_it_has_read_its_own_registration(cluster: DecidedCluster) -> None:
    epoch = registered(cluster.register(3)).broker_epoch
    assert told(cluster.beat(3, offset=epoch - 1)) == (False, True, False)
    assert told(cluster.beat(3, offset=epoch)) == (True, False, False)
    assert 3 in cluster.serving()


@pytest.mark.parametrize("wants", [{}, {"fence": True}, {"shut_down": True}])
def test_a_controlled_shutdown_ends_when_all_others_know_the_new_leaders(
    cluster: DecidedCluster, wants: dict[str, bool]
) -> None:
    cluster.brokers(3)
    before = cluster.image.offset
    assert next_state(cluster, 1, shut_down=True) is CONTROLLED_SHUTDOWN
    after = cluster.image.offset
    assert after > before
    cluster.beat(2, offset=after)
    cluster.beat(3, offset=before)
    assert next_state(cluster, 1, **wants) is CONTROLLED_SHUTDOWN
    cluster.beat(3, offset=after)
    assert next_state(cluster, 1, **wants) is SHUTDOWN_NOW


def test_a_broker_that_stops_waits_for_nobody_who_does_not_serve(cluster: DecidedCluster) -> None:
    cluster.register(3)
    cluster.beat(2, fence=True)
    assert next_state(cluster, 1, shut_down=True) is CONTROLLED_SHUTDOWN
    assert next_state(cluster, 1, shut_down=True) is SHUTDOWN_NOW


def test_a_heartbeat_of_an_earlier_registration(cluster: DecidedCluster) -> None:
    epoch = cluster.image.brokers[1].broker_epoch
    assert cluster.beat(1, epoch=epoch - 1).error == (
        ErrorCode.STALE_BROKER_EPOCH,
        f"Expected broker epoch {epoch}, but got broker epoch {epoch - 1}",
    )
    error = ErrorCode.STALE_BROKER_EPOCH, "No broker registration found for broker id 9"
    assert cluster.beat(9, epoch=1).error == error


def test_directories_that_take_no_new_partitions(cluster: DecidedCluster) -> None:
    assert cluster.image.brokers[1].cordoned_log_dirs is None
    cluster.beat(1, cordoned=[directory_id(1)])
    assert cluster.image.brokers[1].cordoned_log_dirs == [directory_id(1)]
    assert not cluster.beat(1, cordoned=[directory_id(1)]).records
    assert not cluster.beat(1).records
    cluster.beat(1, cordoned=[])
    assert cluster.image.brokers[1].cordoned_log_dirs == []


# --- sessions


def test_a_session_lasts_for_its_time_out_after_the_last_heartbeat(cluster: DecidedCluster) -> None:
    cluster.advance(SESSION_TIMEOUT_S / 2)
    cluster.beat(2)
    cluster.advance(SESSION_TIMEOUT_S / 2)
    assert cluster.sessions.next_deadline_s() == cluster.now_s
    assert not cluster.fence_overdue().records
    cluster.advance(0.001)
    assert fenced(cluster.fence_overdue()) == [1]
    assert not cluster.fence_overdue().records
    assert cluster.sessions.next_deadline_s() == SESSION_TIMEOUT_S * 1.5
    cluster.beat(1)
    assert 1 in cluster.serving()


def test_a_controller_that_starts_waits_a_whole_session(cluster: DecidedCluster) -> None:
    cluster.register(3)
    again = Sessions(SESSION_TIMEOUT_S)
    again.resume(cluster.image, now_s=100)
    assert again.next_deadline_s() == 100 + SESSION_TIMEOUT_S
    assert again.overdue(100 + SESSION_TIMEOUT_S) == []
    assert again.overdue(101 + SESSION_TIMEOUT_S) == [1, 2]
    for broker_id, is_alive in ((1, True), (2, True), (3, False)):
        epoch = cluster.image.brokers[broker_id].broker_epoch
        assert again.is_alive(broker_id, epoch, 100) is is_alive


def test_without_brokers_nobody_is_overdue() -> None:
    assert Sessions(1).next_deadline_s() is None


# --- registrations


def test_a_new_incarnation_has_the_next_offset_as_its_epoch_and_is_fenced(cluster: DecidedCluster) -> None:
    next_offset = cluster.image.offset + 1
    found = registered(cluster.register(3, rack="a"))
    assert (found.broker_epoch, found.fenced, found.rack, found.log_dirs) == (
        next_offset,
        True,
        "a",
        [directory_id(3)],
    )
    assert [(one.name, one.host, one.port) for one in found.end_points] == [("PLAINTEXT", "localhost", 9092)]
    levels = {one.name: (one.min_supported_version, one.max_supported_version) for one in found.features}
    assert levels == FEATURES


def test_nobody_registers_in_the_place_of_a_broker_that_lives(cluster: DecidedCluster) -> None:
    cluster.advance(SESSION_TIMEOUT_S)
    error = cluster.register(1).error
    assert error is not None
    assert error[0] == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.advance(0.001)
    assert cluster.register(1).error is None


def test_a_broker_that_was_not_heard_yet_is_replaced_at_once(cluster: DecidedCluster) -> None:
    cluster.register(3)
    assert cluster.register(3).error is None


def test_the_same_incarnation_keeps_its_epoch_and_state(cluster: DecidedCluster) -> None:
    cluster.register(3, incarnation=77)
    cluster.beat(3)
    before = cluster.image.brokers[3]
    found = registered(cluster.register(3, incarnation=77, rack="b"))
    assert (found.broker_epoch, found.fenced, found.rack) == (before.broker_epoch, False, "b")
    assert cluster.register(3).error is not None, "its session goes on"


def refused(**changes: Any) -> tuple[int, str] | None:
    cluster = DecidedCluster()
    cluster.brokers(1)
    return cluster.register(2, **changes).error


def test_another_cluster() -> None:
    text = f"Expected cluster ID {CLUSTER_ID}, but got cluster ID x"
    assert refused(cluster_id="x") == (ErrorCode.INCONSISTENT_CLUSTER_ID, text)


@pytest.mark.parametrize(
    ("log_dirs", "text"),
    [
        ([], "No directories specified in request"),
        ([bytes(15) + b"\x63"], "Reserved directory ID in request"),
        ([directory_id(2), directory_id(2)], "Duplicate directory ID in request"),
        (
            [directory_id(2), directory_id(1)],
            "Broker 1 is already registered with directory BwEAAAAAAAAAAAAAAAAAAA",
        ),
    ],
)
def test_directories_that_cannot_be(log_dirs: list[bytes], text: str) -> None:
    assert refused(log_dirs=log_dirs) == (ErrorCode.INVALID_REGISTRATION, text)


def test_the_first_directory_id_that_is_not_reserved() -> None:
    assert refused(log_dirs=[bytes(15) + b"\x64"]) is None


def test_features_that_do_not_fit() -> None:
    text = "Request features do not contain 'metadata.version'"
    assert refused(features={}) == (ErrorCode.INVALID_REGISTRATION, text)
    text = (
        "Unable to register because the broker does not support finalized version {} of {}. "
        "The broker wants a version between {} and {}, inclusive."
    )
    for features, wanted in (
        ({**FEATURES, "metadata.version": (34, 35)}, (33, "metadata.version", 34, 35)),
        ({"metadata.version": (30, 33)}, (1, "eligible.leader.replicas.version", 0, 0)),
        ({**FEATURES, "group.version": (1, 1)}, (0, "group.version", 1, 1)),
    ):
        assert refused(features=features) == (ErrorCode.UNSUPPORTED_VERSION, text.format(*wanted))
