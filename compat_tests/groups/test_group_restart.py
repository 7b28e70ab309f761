"""Groups while their broker is stopped, or killed, and started again on its data."""

from collections.abc import Callable, Mapping

import pytest

from compat_tests.brokers import Broker
from compat_tests.groups.group import Group
from compat_tests.groups.settings import KINDS, NEW_PROTOCOL_KINDS, Settings
from compat_tests.groups.test_static import rebalances, settings
from compat_tests.groups.workers import Worker

HOW = ("stop", "kill")
CLIENTS = [
    *(pytest.param(kind, "classic", id=f"{kind}-classic") for kind in KINDS),
    *(pytest.param(kind, "consumer", id=f"{kind}-consumer") for kind in NEW_PROTOCOL_KINDS),
]


def test_members_outlive_a_killed_broker(restartable: Broker, make_group: Callable[..., Group]) -> None:
    """A group of each client and protocol, and a mixed one, all at once: no record is lost, no progress goes back."""
    groups = []
    for kind, protocol in [one.values for one in CLIENTS]:
        group = make_group(restartable.bootstrap)
        groups.append(group)
        group.join(str(kind), Settings(str(protocol)))
        group.join(str(kind), Settings(str(protocol)))
    mixed = make_group(restartable.bootstrap)
    groups.append(mixed)
    for kind in KINDS:
        mixed.join(kind)
    for group in groups:
        group.wait_shared()
        group.read_exactly_once()
    progress = []
    for group in groups:
        group.fill(100)
        progress.append(group.told_committed())
    restartable.kill()
    progress = [group.told_committed() for group in groups]
    restartable.start()
    for group, told in zip(groups, progress, strict=True):
        group.fill()
        committed = group.committed()
        assert all(committed[partition] >= offset for partition, offset in told.items()), group.story()
    for group in groups:
        group.wait_read()
        group.wait_shared()
        group.read_exactly_once()
    for group in groups:
        group.leave()


@pytest.mark.parametrize("how", HOW)
def test_what_a_broker_remembers(
    restartable: Broker, make_group: Callable[..., Group], workers: Mapping[str, Worker], how: str
) -> None:
    """Committed offsets, groups without members, and static members that are away, of both protocols."""
    static = []
    for protocol in ("classic", "consumer"):
        group = make_group(restartable.bootstrap)
        for number in range(2):
            group.join("java", settings(protocol, f"instance-{number}"))
        group.wait_shared()
        group.read_exactly_once()
        static.append(group)
    left = make_group(restartable.bootstrap)
    left.join("confluent-kafka")
    left.wait_shared()
    left.read_exactly_once()
    left.leave()
    classic = static[0]
    described = described_members(classic)
    getattr(restartable, how)()
    restartable.start()
    for group in (*static, left):
        group.fill(1)  # waits for the broker
        assert [end - 1 for end in group.ends] == [20] * 4
    assert left.listed() == ("classic", "empty")
    assert left.committed() == [20] * 4
    assert described_members(classic) == described  # though its leader may have called for another round
    for group in static:
        gone, stayed = group.members
        group.wait_read()
        owned, calls = set(gone.assignment), rebalances(stayed)
        assert calls == stayed.count("assigned") + stayed.count("revoked")
        group.leave(gone)
        back = group.join("java", settings(group.listed()[0], "instance-0"))
        group.wait_shared([back, stayed])
        assert back.assignment == owned
        assert rebalances(stayed) == calls
        group.read_exactly_once()
        group.leave()


def described_members(group: Group) -> list[tuple[str, ...]]:
    """What DescribeGroups tells of each member of a stable group; not its subscription, which holds a generation."""
    group.wait_stable()
    rows = group.describe()["members"]
    fields = ("member_id", "group_instance_id", "client_id", "member_assignment")
    return sorted(tuple(row[field] for field in fields) for row in rows)
