"""Incremental rebalances: a partition that stays with its member is never taken from it."""

import pytest

from compat_tests.groups.group import Group
from compat_tests.groups.settings import Settings

STICKY = Settings(assignors=("cooperative-sticky",))
WAYS = [
    *(
        pytest.param(kind, STICKY, id=f"{kind}-classic")
        for kind in ("confluent-kafka", "kafka-python", "java")
    ),
    *(
        pytest.param(kind, Settings("consumer", remote_assignor=assignor), id=f"{kind}-{assignor}")
        for kind, assignor in (("confluent-kafka", "uniform"), ("java", "uniform"), ("java", "range"))
    ),
]


@pytest.mark.parametrize(("kind", "settings"), WAYS)
def test_what_stays_is_not_revoked(group: Group, kind: str, settings: Settings) -> None:
    """A member loses exactly what another gets; a member that gets something back loses nothing."""
    first = group.join(kind, settings)
    group.wait_shared()
    everything, told = set(first.assignment), len(first.events)
    second = group.join(kind, settings)
    group.wait_shared()
    assert len(second.assignment) == 3
    assert first.partitions_of("revoked", told) == second.assignment == everything - first.assignment
    assert not first.partitions_of("assigned", told)
    group.read_exactly_once()
    kept, told = set(first.assignment), len(first.events)
    group.leave(second)
    group.wait_shared()
    assert not first.partitions_of("revoked", told)
    assert first.partitions_of("assigned", told) == everything - kept
    group.read_exactly_once()
    group.check_handovers()
