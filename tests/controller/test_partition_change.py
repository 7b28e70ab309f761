"""`change_partition`: what is wanted of a partition, and the record that it comes to."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.controller.partition_change import Election, TopicRules, change_partition
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.controller.decided_cluster import DecidedCluster, directory_id

NOBODY = -1
RECOVERING = 1


def changed(
    state: dict[str, Any],
    *,
    elr: bool = True,
    alive: tuple[int, ...] = (1, 2, 3),
    min_isr: int = 2,
    **wanted: Any,
) -> dict[str, Any] | None:
    """The fields of the record that say something, or None for no record. Partition 0 has the replicas 1, 2 and 3, all
    in sync, and the leader 1, but for what ``state`` says.
    """
    cluster = DecidedCluster(elr=elr)
    cluster.brokers(1, 2, 3, 4)
    cluster.topic("t", [1, 2, 3])
    topic = cluster.image.topics["t"]
    cluster.given(PartitionChangeRecord(0, topic.topic_id, **state))
    election = wanted.pop("election", Election.ONLINE)
    record = change_partition(
        cluster.image,
        topic,
        0,
        TopicRules(min_isr, election),
        may_lead=lambda broker: broker in alive,
        election=election,
        **wanted,
    )
    if record is None:
        return None
    nothing = PartitionChangeRecord(0, topic.topic_id)
    return {
        field.name: getattr(record, field.name)
        for field in record.FIELDS
        if getattr(record, field.name) != getattr(nothing, field.name)
    }


def test_what_is_so_already_needs_no_record() -> None:
    assert changed({}) is None
    assert changed({}, isr=[1, 2, 3], replicas=[1, 2, 3], election=Election.PREFERRED) is None


LEADERLESS = {"leader": NOBODY, "isr": []}


@pytest.mark.parametrize(
    ("state", "wanted", "record"),
    [
        pytest.param(
            {},
            {"isr": [2, 3], "alive": (2, 3)},
            {"isr": [2, 3], "leader": 2},
            id="the next replica in the ISR leads",
        ),
        pytest.param(
            {"isr": [1, 3]},
            {"isr": [3], "alive": (2, 3)},
            {"isr": [3], "leader": 3, "eligible_leader_replicas": [1]},
            id="who leaves an ISR below its minimum is eligible",
        ),
        pytest.param(
            {"isr": [3], "leader": 3, "eligible_leader_replicas": [1]},
            {"isr": [3, 2]},
            {"isr": [3, 2], "eligible_leader_replicas": []},
            id="an ISR that is large enough has no ELR, and no new epoch",
        ),
        pytest.param(
            {"isr": [3], "leader": 3, "eligible_leader_replicas": [1]},
            {"isr": [], "alive": (2,)},
            {"isr": [], "leader": NOBODY, "eligible_leader_replicas": [1, 3], "last_known_elr": [3]},
            id="without an eligible replica nobody leads",
        ),
        pytest.param(
            {**LEADERLESS, "eligible_leader_replicas": [1, 3], "last_known_elr": [3]},
            {"alive": (1, 2)},
            {"isr": [1], "leader": 1, "eligible_leader_replicas": [3], "last_known_elr": []},
            id="an eligible replica leads, and is the ISR",
        ),
        pytest.param(
            {**LEADERLESS, "eligible_leader_replicas": [3], "last_known_elr": [3]},
            {"unclean_shutdown": 3},
            {"isr": [3], "leader": 3, "leader_recovery_state": RECOVERING, "eligible_leader_replicas": []}
            | {"last_known_elr": []},
            id="the last known leader leads, uncleanly, if nobody is eligible",
        ),
        pytest.param(
            {**LEADERLESS, "eligible_leader_replicas": [3], "last_known_elr": [3]},
            {"unclean_shutdown": 3, "alive": (1, 2)},
            {"eligible_leader_replicas": []},
            id="nobody else leads if only the last known leader may",
        ),
        pytest.param(
            {**LEADERLESS, "last_known_elr": [3]},
            {"alive": (2,), "election": Election.UNCLEAN},
            {"isr": [2], "leader": 2, "leader_recovery_state": RECOVERING, "last_known_elr": []},
            id="any replica leads if the topic allows it",
        ),
        pytest.param(
            {"isr": [2, 3, 1], "leader": 2},
            {"election": Election.PREFERRED},
            {"leader": 1},
            id="the preferred replica leads if somebody asks for it",
        ),
        pytest.param(
            {"isr": [2, 3], "leader": 2},
            {"election": Election.PREFERRED},
            None,
            id="the preferred replica has to be in sync",
        ),
        pytest.param(
            {"leader_recovery_state": RECOVERING, "isr": [1]},
            {"isr": [1, 2], "recovery_state": 0},
            {"isr": [1, 2], "leader_recovery_state": 0},
            id="a leader has recovered",
        ),
    ],
)
def test_leaders_and_isrs(
    state: dict[str, Any], wanted: dict[str, Any], record: dict[str, Any] | None
) -> None:
    assert changed(state, **wanted) == record


@pytest.mark.parametrize(
    ("state", "wanted", "record"),
    [
        pytest.param(
            {"isr": [1]},
            {"isr": [], "alive": (2, 3)},
            {"leader": NOBODY},
            id="the last one stays in the ISR",
        ),
        pytest.param(
            {"isr": [1], "leader": NOBODY},
            {},
            {"leader": 1},
            id="and leads when it is back",
        ),
        pytest.param(
            {"isr": [1], "leader": NOBODY},
            {"alive": (3,), "election": Election.UNCLEAN},
            {"isr": [3], "leader": 3, "leader_recovery_state": RECOVERING},
            id="unless the topic allows any replica to lead",
        ),
    ],
)
def test_without_elr(state: dict[str, Any], wanted: dict[str, Any], record: dict[str, Any]) -> None:
    assert changed(state, elr=False, **wanted) == record


DIRECTORIES = {one: directory_id(one) for one in (1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("state", "wanted", "record"),
    [
        pytest.param(
            {},
            {"replicas": [1, 2, 3, 4], "adding": [4]},
            {"replicas": [1, 2, 3, 4], "directories": list(DIRECTORIES.values()), "adding_replicas": [4]},
            id="a replica is added: nobody is refused",
        ),
        pytest.param(
            {"replicas": [4, 1, 2, 3], "adding_replicas": [4], "removing_replicas": [3]}
            | {"directories": [DIRECTORIES[one] for one in (4, 1, 2, 3)]},
            {"isr": [1, 2, 3, 4]},
            {"replicas": [4, 1, 2], "directories": [DIRECTORIES[one] for one in (4, 1, 2)], "isr": [1, 2, 4]}
            | {"adding_replicas": [], "removing_replicas": [], "leader": 1},
            id="it is in sync: the other one goes, and the epoch rises for that",
        ),
        pytest.param(
            {"replicas": [4, 1, 2, 3], "adding_replicas": [4], "removing_replicas": [3]}
            | {"directories": [DIRECTORIES[one] for one in (4, 1, 2, 3)]},
            {"isr": [1, 3]},
            {"isr": [1, 3]},
            id="it is not in sync: the reassignment goes on",
        ),
        pytest.param(
            {},
            {"removing": [1]},
            {
                "replicas": [2, 3],
                "directories": [DIRECTORIES[one] for one in (2, 3)],
                "isr": [2, 3],
                "leader": 2,
            },
            id="the leader goes: another one leads",
        ),
        pytest.param(
            {"isr": [1, 2]},
            {"removing": [1]},
            {"removing_replicas": [1]},
            id="fewer replicas than before: all of them have to be in sync",
        ),
        pytest.param(
            {"isr": [1]},
            {"removing": [1], "adding": []},
            {"removing_replicas": [1]},
            id="nobody who stays is in sync: nobody goes",
        ),
        pytest.param(
            {},
            {"removing": [1, 2, 3]},
            {"removing_replicas": [1, 2, 3]},
            id="nobody would stay: nobody goes",
        ),
    ],
)
def test_reassignments(state: dict[str, Any], wanted: dict[str, Any], record: dict[str, Any]) -> None:
    assert changed(state, alive=(1, 2, 3, 4), **wanted) == record


def test_a_replica_in_a_lost_directory_does_not_lead() -> None:
    lost = bytes(15) + b"\x02"
    for directory in (lost, directory_id(9)):
        state = {"directories": [DIRECTORIES[1], directory, DIRECTORIES[3]]}
        assert changed(state, isr=[2, 3], alive=(2, 3)) == {"isr": [2, 3], "leader": 3}
    unassigned = {"directories": [DIRECTORIES[1], bytes(15) + b"\x01", DIRECTORIES[3]]}
    assert changed(unassigned, isr=[2, 3], alive=(2, 3)) == {"isr": [2, 3], "leader": 2}
