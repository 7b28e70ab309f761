"""Members of a group share a topic's partitions while members join, leave and are killed; single and mixed clients."""

from collections.abc import Callable

import pytest

from compat_tests.groups.group import Group
from compat_tests.groups.settings import CLIENTS, KINDS, Settings
from compat_tests.groups.workers import Worker

pytestmark = pytest.mark.also_on("proxy")

MIXTURES = {
    "range": KINDS,
    "roundrobin": KINDS,
    "sticky": ("kafka-python", "aiokafka", "java"),
    "cooperative-sticky": ("confluent-kafka", "kafka-python", "java"),
}


@pytest.mark.pairwise
@pytest.mark.parametrize(("kind", "protocol"), CLIENTS)
def test_members_come_and_go(group: Group, kind: str, protocol: str) -> None:
    """Each record is read once, by the only owner of its partition."""
    settings = Settings(protocol)
    first = group.join(kind, settings)
    group.wait_until_shared()
    group.assert_read_exactly_once()
    second, third = group.join(kind, settings), group.join(kind, settings)
    group.wait_until_shared([first, second, third])
    assert sorted(len(member.assignment) for member in group.live) == [2, 2, 2]
    group.assert_read_exactly_once()
    assert group.type_and_state() == (protocol, "stable")
    group.leave(second)
    group.wait_until_shared([first, third])
    group.assert_read_exactly_once()
    group.leave()
    assert group.type_and_state() == (protocol, "empty")
    late = group.join(kind, settings)  # continues from the committed offsets
    group.wait_until_shared([late])
    group.assert_read_exactly_once()
    assert len(late.records) == 6 * 20
    group.assert_single_owners()


@pytest.mark.pairwise
@pytest.mark.parametrize(("kind", "protocol"), CLIENTS)
def test_a_killed_member(group: Group, own_worker: Callable[[str], Worker], kind: str, protocol: str) -> None:
    """After its session its partitions are reassigned; only uncommitted records are read again, and none is lost."""
    settings = Settings(protocol, session_ms=1500)
    victim = own_worker(kind)
    group.join(kind, settings)
    doomed = group.join(kind, settings, worker=victim)
    group.wait_until_shared()
    group.assert_read_exactly_once()
    group.fill(200)
    group.wait(lambda: doomed.count("records") > 3, "the member to be busy")
    victim.kill()
    reported, committed = dict(doomed.committed), group.committed()
    assert all(committed[partition] >= offset for (_, partition), offset in reported.items())
    group.fill()
    group.wait_until_shared()
    again = {where for where, times in group.wait_until_read().items() if times > 1}
    had_read = {where for where in again if (group.topic, *where) in doomed.records}
    assert again == had_read  # only records that the member had read are read twice …
    assert all(
        offset >= reported.get((group.topic, partition), 0) for partition, offset in again
    )  # … and had not committed
    group.assert_read_exactly_once()


@pytest.mark.parametrize("assignor", MIXTURES)
def test_mixed_clients(group: Group, assignor: str) -> None:
    """A group of different clients. The leader's client assigns the partitions; it changes as members leave."""
    settings = Settings(assignors=(assignor,))
    for kind in MIXTURES[assignor]:
        group.join(kind, settings)
        group.wait_until_shared()
    assert group.describe()["protocol_data"] == assignor
    group.assert_read_exactly_once()
    for member in list(group.members[:-1]):
        group.leave(member)
        group.wait_until_shared()
        group.assert_read_exactly_once()
    group.assert_single_owners()


def test_a_common_assignor(group: Group) -> None:
    """The group's protocol is one that every member supports; a member without a common one is refused."""
    group.join("java", Settings(assignors=("range", "roundrobin")))
    group.wait_until_shared()
    assert group.describe()["protocol_data"] == "range"
    last = group.join("confluent-kafka", Settings(assignors=("roundrobin",)))
    group.wait_until_shared()
    assert group.describe()["protocol_data"] == "roundrobin"
    stranger = group.join("java", Settings(assignors=("sticky",)))
    group.wait_until_refused(stranger, "InconsistentGroupProtocolException")
    group.leave(last)
    group.wait_until_shared()
    assert group.describe()["protocol_data"] == "range"
