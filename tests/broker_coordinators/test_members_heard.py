"""Whose connection is open: of as many members as there are, and no more."""

from __future__ import annotations

from oncelog.broker.coordinators.members_heard import SWEEP_AT_LEAST, MembersHeard
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated


class SomePeer:
    is_open = True


def test_the_latest_connection_counts() -> None:
    heard = MembersHeard(lambda group_id, member_id: True)
    first, second = SomePeer(), SomePeer()
    assert not heard.is_connected("g", "m")
    heard.note("g", "m", first)
    heard.note("g", "m", second)
    first.is_open = False
    assert heard.is_connected("g", "m")
    assert not heard.is_connected("h", "m")
    second.is_open = False
    assert not heard.is_connected("g", "m")


def test_members_that_are_gone_take_no_memory() -> None:
    members = {("g", "stays"), ("g", "closed")}
    heard = MembersHeard(lambda *key: key in members)
    peer, closed = SomePeer(), SomePeer()
    heard.note("g", "stays", peer)
    heard.note("g", "closed", closed)
    closed.is_open = False
    for number in range(3 * SWEEP_AT_LEAST):
        heard.note("g", f"gone {number}", peer)
        assert len(heard) <= SWEEP_AT_LEAST
    assert heard.is_connected("g", "stays")
    assert not heard.is_connected("g", "gone 0")


def test_many_members_are_all_remembered() -> None:
    heard = MembersHeard(lambda *key: True)
    peer = SomePeer()
    for number in range(5 * SWEEP_AT_LEAST):
        heard.note("g", str(number), peer)
    assert len(heard) == 5 * SWEEP_AT_LEAST


@simulated
async def test_only_members_are_remembered() -> None:
    """Requests with invented member ids leave nothing behind."""
    async with SimBroker() as broker:
        await coordinated(broker)
        heard = broker.node.groups.members_heard
        member = SimMember(broker)
        await member.join()
        assert heard.is_connected("g", member.member_id)
        await member.found()
        stranger = SimMember(broker)
        for number in range(10):
            stranger.member_id = f"invented {number}"
            await stranger.heartbeat()
            await stranger.join()
        assert len(heard) == 1
        assert heard.is_connected("g", member.member_id)
