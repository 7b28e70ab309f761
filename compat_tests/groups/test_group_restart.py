"""Groups whose broker is stopped or killed, and started again on its data."""

from collections.abc import Callable

from compat_tests.brokers import Broker
from compat_tests.groups.group import Group
from compat_tests.groups.settings import CLIENTS, KINDS, Settings, static_settings
from compat_tests.groups.workers import count_rebalances

SPINNING = ("java", "consumer")


def test_members_outlive_a_killed_broker(restartable: Broker, make_group: Callable[..., Group]) -> None:
    """Groups of each client and protocol, and a mixed one, at once: no record is lost, no committed offset falls."""
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
        group.wait_until_shared()
        group.assert_read_exactly_once()
    for group in groups:
        group.fill(100)
    # Java's new consumer spins while a commit waits for the broker, and so slows the start of a real Kafka.
    groups[CLIENTS.index(SPINNING)].wait_until_read()
    restartable.kill()
    progress = [group.reported_commits() for group in groups]
    restartable.start()
    for group, before in zip(groups, progress, strict=True):
        group.fill()
        committed = group.committed()
        assert all(committed[partition] >= offset for partition, offset in before.items()), group.event_log()
    for group in groups:
        group.wait_until_read()
        group.wait_until_shared()
        group.assert_read_exactly_once()
    for group in groups:
        group.leave()


def test_groups_survive_a_restart(restartable: Broker, make_group: Callable[..., Group]) -> None:
    """Committed offsets, groups without members, and static members of both protocols, connected or not."""
    static = []
    for protocol in ("classic", "consumer"):
        group = make_group(restartable.bootstrap)
        for number in range(2):
            group.join("java", static_settings(protocol, f"instance-{number}"))
        group.wait_until_shared()
        group.assert_read_exactly_once()
        static.append(group)
    empty = make_group(restartable.bootstrap)
    empty.join("confluent-kafka")
    empty.wait_until_shared()
    empty.assert_read_exactly_once()
    empty.leave()
    classic = static[0]
    for how in ("stop", "kill"):
        described, committed = classic.describe_members(), empty.committed()
        getattr(restartable, how)()
        restartable.start()
        for group in (*static, empty):
            group.fill()
        assert empty.type_and_state() == ("classic", "empty")
        assert empty.committed() == committed
        assert (
            classic.describe_members() == described
        )  # its generation may differ: the leader may have asked for another rebalance
        for group in static:
            gone, stayed = group.live
            group.wait_until_read()
            owned, calls = set(gone.assignment), count_rebalances(stayed)
            group.leave(gone)
            back = group.join("java", static_settings(group.type_and_state()[0], gone.instance))
            group.wait_until_shared([back, stayed])
            assert back.assignment == owned
            assert count_rebalances(stayed) == calls
            group.assert_read_exactly_once()
    for group in static:
        assert not any(member.count("lost") for member in group.members), group.event_log()
