"""Members of one group share a topic's partitions: joining, leaving, killed; each client, and clients mixed."""

from collections.abc import Callable

import pytest

from compat_tests.groups.group import Group
from compat_tests.groups.settings import KINDS, NEW_PROTOCOL_KINDS, Settings
from compat_tests.groups.workers import Worker

CLASSIC = [pytest.param(kind, "classic", id=f"{kind}-classic") for kind in KINDS]
CONSUMER = [pytest.param(kind, "consumer", id=f"{kind}-consumer") for kind in NEW_PROTOCOL_KINDS]
MIXTURES = {
    "range": KINDS,
    "roundrobin": KINDS,
    "sticky": ("kafka-python", "aiokafka", "java"),
    "cooperative-sticky": ("confluent-kafka", "kafka-python", "java"),
}


@pytest.mark.parametrize(("kind", "protocol"), CLASSIC + CONSUMER)
def test_members_come_and_go(group: Group, kind: str, protocol: str) -> None:
    """At each moment every record is read by the one owner of its partition, and by nobody else."""
    settings = Settings(protocol)
    first = group.join(kind, settings)
    group.wait_shared()
    group.read_exactly_once()
    second, third = group.join(kind, settings), group.join(kind, settings)
    group.wait_shared([first, second, third])
    assert sorted(len(member.assignment) for member in group.live) == [2, 2, 2]
    group.read_exactly_once()
    assert group.listed() == (protocol, "stable")
    group.leave(second)
    group.wait_shared([first, third])
    group.read_exactly_once()
    group.leave()
    assert group.listed() == (protocol, "empty")
    late = group.join(kind, settings)  # from the committed offsets on
    group.wait_shared([late])
    group.read_exactly_once()
    assert len(late.records) == 6 * 20
    group.check_handovers()


@pytest.mark.parametrize(("kind", "protocol"), CLASSIC + CONSUMER)
def test_a_killed_member(group: Group, own_worker: Callable[[str], Worker], kind: str, protocol: str) -> None:
    """Its partitions pass on after its session; what it had not committed is read again, and nothing is lost."""
    settings = Settings(protocol, session_ms=1500)
    victim = own_worker(kind)
    group.join(kind, settings)
    doomed = group.join(kind, settings, worker=victim)
    group.wait_shared()
    group.read_exactly_once()
    group.fill(200)
    group.wait(lambda: doomed.count("records") > 3, "the member to be busy")
    victim.kill()
    told, committed = dict(doomed.committed), group.committed()
    assert all(committed[partition] >= offset for (_, partition), offset in told.items())
    group.fill()
    group.wait_shared()
    again = {where for where, times in group.wait_read().items() if times > 1}
    had_read = {where for where in again if (group.topic, *where) in doomed.records}
    assert again == had_read  # twice is only what the member had read before its death …
    assert all(
        offset >= told.get((group.topic, partition), 0) for partition, offset in again
    )  # … uncommitted
    group.read_exactly_once()


@pytest.mark.parametrize("assignor", MIXTURES)
def test_mixed_clients(group: Group, assignor: str) -> None:
    """One group of different clients. The leader, whose code assigns the partitions, changes as they leave."""
    settings = Settings(assignors=(assignor,))
    for kind in MIXTURES[assignor]:
        group.join(kind, settings)
        group.wait_shared()
    assert group.describe()["protocol_data"] == assignor
    group.read_exactly_once()
    for member in list(group.members[:-1]):
        group.leave(member)
        group.wait_shared()
        group.read_exactly_once()
    group.check_handovers()


def test_the_assignor_that_all_have(group: Group) -> None:
    """The group's protocol is one that every member names; whoever has none in common is refused."""
    group.join("java", Settings(assignors=("range", "roundrobin")))
    group.wait_shared()
    assert group.describe()["protocol_data"] == "range"
    last = group.join("confluent-kafka", Settings(assignors=("roundrobin",)))
    group.wait_shared()
    assert group.describe()["protocol_data"] == "roundrobin"
    stranger = group.join("java", Settings(assignors=("sticky",)))
    group.wait_refused(stranger, "InconsistentGroupProtocolException")
    group.leave(last)
    group.wait_shared()
    assert group.describe()["protocol_data"] == "range"
