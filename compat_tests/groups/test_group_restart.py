"""Groups while their broker is stopped, or killed, and started again on its data."""

from collections.abc import Callable

from compat_tests.brokers import Broker
from compat_tests.groups.group import Group
from compat_tests.groups.settings import KINDS, NEW_PROTOCOL_KINDS, Settings
from compat_tests.groups.test_static import rebalances, settings

SPINNING = ("java", "consumer")
CLIENTS = [*((kind, "classic") for kind in KINDS), *((kind, "consumer") for kind in NEW_PROTOCOL_KINDS)]


def test_members_outlive_a_killed_broker(restartable: Broker, make_group: Callable[..., Group]) -> None:
    """A group of each client and protocol, and a mixed one, all at once: no record is lost, no progress goes back."""
    groups = []
    for kind, protocol in CLIENTS:
        group = make_group(restartable.bootstrap)
        groups.append(group)
        group.join(kind, Settings(protocol))
        group.join(kind, Settings(protocol))
    mixed = make_group(restartable.bootstrap)
    groups.append(mixed)
    for kind in KINDS:
        mixed.join(kind)
    for group in groups:
        group.wait_shared()
        group.read_exactly_once()
    for group in groups:
        group.fill(100)
    # While a commit waits for a broker that is away Java's new consumer spins, which slows the start of a real Kafka.
    groups[CLIENTS.index(SPINNING)].wait_read()
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


def test_what_a_broker_remembers(restartable: Broker, make_group: Callable[..., Group]) -> None:
    """Committed offsets, groups without members, and static members of both protocols, whether they are away or not."""
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
    for how in ("stop", "kill"):
        described, committed = described_members(classic), left.committed()
        getattr(restartable, how)()
        restartable.start()
        for group in (*static, left):
            group.fill()
        assert left.listed() == ("classic", "empty")
        assert left.committed() == committed
        assert described_members(classic) == described  # though its leader may have called for another round
        for group in static:
            gone, stayed = group.live
            group.wait_read()
            owned, calls = set(gone.assignment), rebalances(stayed)
            group.leave(gone)
            back = group.join("java", settings(group.listed()[0], gone.instance))
            group.wait_shared([back, stayed])
            assert back.assignment == owned
            assert rebalances(stayed) == calls
            group.read_exactly_once()
    for group in static:
        assert not any(member.count("lost") for member in group.members), group.story()


def described_members(group: Group) -> list[tuple[str, ...]]:
    """What DescribeGroups tells of each member of a stable group; not its subscription, which holds a generation."""
    group.wait_stable()
    rows = group.describe()["members"]
    fields = ("member_id", "group_instance_id", "client_id", "member_assignment")
    return sorted(tuple(row[field] for field in fields) for row in rows)
