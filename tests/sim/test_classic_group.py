"""A classic group at work, with everything going wrong: members die, stall and come back, and the broker dies.

Each consumer works through the partitions that it is assigned and commits how far it is. Whatever happens, no partition
has two owners in a generation, what a commit was acknowledged for is never lost, no commit of an old generation counts
when a newer one has committed, and in the end all is done and the group is empty. Every choice comes from the seed.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, Literal

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.harness.classic_members import HEARTBEAT, SimMember, coordinated, describe
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import deterministic

PARTITIONS, CONSUMERS = 5, 4
WORK = 250
"""Records of each partition."""
LIVES = 4
STEPS_MAX = 400
SESSION_MS, REBALANCE_MS = 6_000, 1_500
TOPIC, GROUP = "in", "g"
LOST = (ConnectionEndedError, OSError, trio.ClosedResourceError, trio.BrokenResourceError)
COME_BACK = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
}
Kind = Literal["process", "power"]


class RejoinError(Exception):
    """The member is no longer part of the generation."""


class World:
    def __init__(self, broker: SimBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.faults = True
        self.next_life = trio.Event()
        self.owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> member."""
        self.acknowledged = [0] * PARTITIONS
        self.committed_in = [0] * PARTITIONS
        """The newest generation that has committed."""

    @property
    def done(self) -> bool:
        return self.acknowledged == [WORK] * PARTITIONS


class Consumer:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_static = world.rng.random() < 0.4

    async def live(self) -> None:
        world = self.world
        while not world.done:
            if world.broker.is_dead:
                await world.next_life.wait()
            member = SimMember(world.broker, GROUP, self.name if self.is_static else None)
            member.session_ms, member.rebalance_ms = SESSION_MS, REBALANCE_MS
            member.metadata = self.name.encode()
            with suppress(*LOST):
                await self.run(member)
            member.client.transport.close()
            await trio.sleep(0.05)

    async def run(self, member: SimMember) -> None:
        """One process, until it dies."""
        while not self.world.done:
            with suppress(RejoinError):
                partitions = await self.enter(member)
                await self.work(member, partitions)
            await trio.sleep(0.02)
        await member.leave()

    async def enter(self, member: SimMember) -> list[int]:
        """Join, send assignments if this member is the leader, and take the own assignment."""
        response = await member.join()
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            member.member_id = ""
        if code is not ErrorCode.NONE:
            assert code in COME_BACK | {
                ErrorCode.MEMBER_ID_REQUIRED,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_INSTANCE_ID,
            }, code
            raise RejoinError
        shares: dict[str, bytes] = {}
        if response.leader == member.member_id and not response.skip_assignment:
            ids = [row.member_id for row in response.members]
            assert member.member_id in ids
            shares = {one: bytes(range(at, PARTITIONS, len(ids))) for at, one in enumerate(ids)}
        synced = await member.sync(shares)
        self.check(member, synced.error_code)
        for partition in synced.assignment:
            owner = self.world.owners.setdefault((member.generation, partition), member.member_id)
            assert owner == member.member_id or self.is_static, "two owners in one generation"
        return list(synced.assignment)

    async def work(self, member: SimMember, partitions: list[int]) -> None:
        world, rng = self.world, self.world.rng
        acknowledged = list(world.acknowledged)
        found = await fetch_offsets(member.client, GROUP, {TOPIC: partitions}) if partitions else {}
        if not isinstance(found, dict) or any(isinstance(offset, str) for offset in found.values()):
            raise RejoinError
        positions = {partition: max(0, found[TOPIC, partition]) for partition in partitions}
        for partition, position in positions.items():
            assert position >= acknowledged[partition], "an acknowledged commit is gone"
        while not world.done:
            for partition in partitions:
                positions[partition] = min(WORK, positions[partition] + rng.randint(0, 3))
            await self.commit(member, positions)
            chance = rng.random() if world.faults else 1.0
            if chance < 0.03:
                raise ConnectionEndedError  # it dies
            if chance < 0.10:
                await trio.sleep(
                    rng.random() * 2 * SESSION_MS / 1000
                )  # it stalls, and goes on as if nothing were
                await self.commit(member, positions)
            elif chance < 0.11:
                await member.leave()
                member.member_id = ""
                raise RejoinError
            await trio.sleep(0.2)
            self.check(member, await heartbeat(member))

    async def commit(self, member: SimMember, positions: dict[int, int]) -> None:
        world = self.world
        if not positions:
            return
        newest = list(world.committed_in)
        codes = await commit(
            member.client,
            GROUP,
            {TOPIC: dict(positions)},
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
        )
        for (_, partition), code in codes.items():
            self.check(member, code)
            assert newest[partition] <= member.generation, "a commit of a generation that is over"
            world.committed_in[partition] = max(world.committed_in[partition], member.generation)
            world.acknowledged[partition] = max(world.acknowledged[partition], positions[partition])

    def check(self, member: SimMember, code: int) -> None:
        """Raises RejoinError if the response says that the member is not part of the generation."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            member.member_id = ""
        elif code:
            assert code in COME_BACK, ErrorCode(code)
        if code:
            raise RejoinError


async def heartbeat(member: SimMember) -> int:
    request = HeartbeatRequest(GROUP, member.generation, member.member_id, member.instance)
    response: Any = await member.client.call(request, HEARTBEAT, HeartbeatResponse)
    return int(response.error_code)


async def lives(seed: int, kind: Kind, config: dict[str, str]) -> None:
    rng = random.Random(seed)
    async with SimBroker(seed, config) as broker:
        client = await coordinated(broker)
        await create_topic(client, TOPIC, PARTITIONS)
        world = World(broker, rng)
        async with trio.open_nursery() as nursery:
            for number in range(CONSUMERS):
                nursery.start_soon(Consumer(world, f"consumer-{number}").live)
            for _ in range(LIVES):
                await one_life(world, kind)
            world.faults = False
            with trio.move_on_after(1_000) as patience:
                while not world.done:
                    await trio.sleep(0.5)
            assert not patience.cancelled_caught, world.acknowledged
            with trio.move_on_after(60):
                while len(nursery.child_tasks):
                    await trio.sleep(1)
            assert not nursery.child_tasks, "a member waits for ever"
        await trio.sleep(2 * SESSION_MS / 1000)
        client = broker.connect()
        assert (await describe(client, GROUP)).group_state == "Empty"
        assert await fetch_offsets(client, GROUP) == {(TOPIC, at): WORK for at in range(PARTITIONS)}


async def one_life(world: World, kind: Kind) -> None:
    broker = world.broker
    files: Any = broker.files
    files.crash_at = files.steps + world.rng.randrange(STEPS_MAX)
    with trio.fail_after(10_000):
        while not broker.is_dead and not world.done:
            await trio.sleep(0.05)
    await broker.crash(kind)
    await broker.start()
    event, world.next_life = world.next_life, trio.Event()
    event.set()


@pytest.mark.parametrize("seed", range(6))
def test_a_group_over_process_deaths(seed: int) -> None:
    deterministic(lambda: lives(seed, "process", {}), seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_group_over_losses_of_power_with_flush_messages_1(seed: int) -> None:
    deterministic(lambda: lives(seed, "power", {"log.flush.interval.messages": "1"}), seed)
