"""Incremental rebalances: a partition that stays with its owner is never revoked."""

import pytest

from compat_tests.groups.group import Group
from compat_tests.groups.settings import Settings

STICKY = Settings(assignors=("cooperative-sticky",))
CLIENTS = [
    *(
        pytest.param(kind, STICKY, id=f"{kind}-classic")
        for kind in ("confluent-kafka", "kafka-python", "java")
    ),
    *(
        pytest.param(kind, Settings("consumer", remote_assignor=assignor), id=f"{kind}-{assignor}")
        for kind, assignor in (("confluent-kafka", "uniform"), ("java", "uniform"), ("java", "range"))
    ),
]


@pytest.mark.parametrize(("kind", "settings"), CLIENTS)
def test_kept_partitions_are_not_revoked(group: Group, kind: str, settings: Settings) -> None:
    """A member loses only the partitions that another gets; a member that gets them back loses none."""
    first = group.join(kind, settings)
    group.wait_until_shared()
    everything, since = set(first.assignment), len(first.events)
    second = group.join(kind, settings)
    group.wait_until_shared()
    assert len(second.assignment) == 3
    assert first.partitions_of("revoked", since) == second.assignment == everything - first.assignment
    assert not first.partitions_of("assigned", since)
    group.assert_read_exactly_once()
    kept, since = set(first.assignment), len(first.events)
    group.leave(second)
    group.wait_until_shared()
    assert not first.partitions_of("revoked", since)
    assert first.partitions_of("assigned", since) == everything - kept
    group.assert_read_exactly_once()
    group.assert_single_owners()
