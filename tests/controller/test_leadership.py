"""Brokers that come and go, and elections: which leaders, ISRs and ELRs the partitions have then."""

from __future__ import annotations

import pytest

from oncelog.broker.controller.partition_change import TopicRules
from oncelog.wire.errors import ErrorCode
from tests.controller.decided_cluster import MIN_ISR, UNCLEAN_ENABLE, DecidedCluster, fenced

NOBODY = -1
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster() -> DecidedCluster:
    """Three brokers, a topic of three replicas, and one of a single replica on broker 1."""
    cluster = DecidedCluster()
    cluster.brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3], min_insync_replicas="2")
    cluster.topic("single", [1])
    return cluster


def state(cluster: DecidedCluster, name: str = "t") -> tuple[int, list[int], list[int]]:
    """The partition's leader, ISR and ELR."""
    found = cluster.partition(name)
    return found.leader, found.isr, found.eligible_leader_replicas


def silence(cluster: DecidedCluster, *broker_ids: int) -> None:
    """Let the sessions of these brokers end; all others are heard."""
    cluster.advance(5)
    for broker_id in cluster.serving():
        if broker_id not in broker_ids:
            cluster.beat(broker_id)
    cluster.advance(5)
    assert fenced(cluster.fence_overdue()) == list(broker_ids)


def restart(cluster: DecidedCluster, broker_id: int, *, was_clean: bool) -> None:
    epoch = cluster.image.brokers[broker_id].broker_epoch
    cluster.register(broker_id, previous_epoch=epoch if was_clean else -1)
    cluster.beat(broker_id)


def test_a_silent_broker_leads_nothing(cluster: DecidedCluster) -> None:
    silence(cluster, 1)
    assert state(cluster) == (2, [2, 3], [])
    assert state(cluster, "single") == (NOBODY, [], [1])
    cluster.beat(1)
    assert state(cluster) == (2, [2, 3], [])
    assert state(cluster, "single") == (1, [1], [])


def test_the_last_two_become_eligible_one_after_the_other(cluster: DecidedCluster) -> None:
    silence(cluster, 1)
    silence(cluster, 2)
    assert state(cluster) == (3, [3], [2])
    silence(cluster, 3)
    assert state(cluster) == (NOBODY, [], [2, 3])
    assert cluster.partition().last_known_elr == [3]
    cluster.beat(1)
    assert state(cluster) == (NOBODY, [], [2, 3]), "broker 1 lacks records that were acknowledged"
    cluster.beat(2)
    assert state(cluster) == (2, [2], [3])


def test_who_stopped_uncleanly_is_not_eligible(cluster: DecidedCluster) -> None:
    silence(cluster, 1)
    silence(cluster, 2, 3)
    assert state(cluster) == (NOBODY, [], [2, 3])
    restart(cluster, 2, was_clean=False)
    assert state(cluster) == (NOBODY, [], [3])
    restart(cluster, 3, was_clean=True)
    assert state(cluster) == (3, [3], [])
    assert cluster.partition().leader_recovery_state == 0


def test_a_killed_broker_has_left_the_isr_when_it_is_back(cluster: DecidedCluster) -> None:
    cluster.sessions.end(1)
    restart(cluster, 1, was_clean=False)
    assert state(cluster) == (2, [2, 3], [])
    # Nobody is left who has all the records: the last leader leads, and may have lost some.
    assert state(cluster, "single") == (1, [1], [])
    assert cluster.partition("single").leader_recovery_state == 1


def test_a_controlled_shutdown_hands_over_without_a_gap(cluster: DecidedCluster) -> None:
    cluster.beat(1, shut_down=True)
    assert state(cluster) == (2, [2, 3], [])
    assert not cluster.image.brokers[1].fenced
    cluster.beat(2)
    cluster.beat(3)
    assert fenced(cluster.beat(1, shut_down=True)) == [1]


def test_an_unregistered_broker_is_in_no_isr(cluster: DecidedCluster) -> None:
    cluster.unregister(1)
    assert list(cluster.image.brokers) == [2, 3]
    assert state(cluster) == (2, [2, 3], [])
    assert cluster.unregister(1).error == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 1 is not currently registered",
    )


def test_preferred_leaders_are_elected_or_not_needed_or_missing(cluster: DecidedCluster) -> None:
    def refusal(name: str, index: int = 0, election_type: int = PREFERRED) -> int:
        error = cluster.elect(name, index, election_type).error
        assert error is not None
        return error[0]

    assert refusal("t") == ErrorCode.ELECTION_NOT_NEEDED
    assert refusal("nobody's") == refusal("t", 1) == refusal("t", -1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal("t", 0, 2) == ErrorCode.INVALID_REQUEST
    silence(cluster, 1)
    assert refusal("t") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert refusal("t", 0, UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    assert refusal("single", 0, UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_partitions_without_their_preferred_leader_are_balanced(cluster: DecidedCluster) -> None:
    cluster.topic("u", [2, 1], [1, 2], [1, 3])
    silence(cluster, 1)
    cluster.beat(1)
    epochs = [cluster.partition("u", index).leader_epoch for index in range(3)]
    assert not cluster.balance().records, "broker 1 is in no ISR yet"
    cluster.given_isr("u", 1, [1, 2])
    assert len(cluster.balance().records) == 1
    assert [cluster.partition("u", index).leader for index in range(3)] == [2, 1, 3]
    assert [cluster.partition("u", index).leader_epoch for index in range(3)] == [
        epochs[0],
        epochs[1] + 1,
        epochs[2],
    ]


def test_a_topic_that_begins_to_allow_unclean_leaders_gets_one(cluster: DecidedCluster) -> None:
    silence(cluster, 1)
    silence(cluster, 2)
    silence(cluster, 3)
    cluster.beat(1)
    assert not cluster.elect_unclean().records
    cluster.set_config("t", UNCLEAN_ENABLE, "true")
    assert len(cluster.elect_unclean().records) == 1
    assert state(cluster) == (1, [1], [])
    assert cluster.partition().leader_recovery_state == 1


def test_the_minimum_is_the_cluster_s_and_never_more_than_the_replicas(cluster: DecidedCluster) -> None:
    cluster.set_config("", MIN_ISR, "3")
    cluster.topic("u", [1, 2], [3, 1])
    rules = [TopicRules.of(cluster.image, cluster.config, topic) for topic in cluster.image.topics.values()]
    assert [one.min_isr for one in rules] == [2, 1, 2], "the topic t has a minimum of its own"
    silence(cluster, 1)
    assert state(cluster, "u") == (2, [2], [1])
