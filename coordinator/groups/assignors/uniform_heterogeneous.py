"""The uniform assignor for members with different topics: assigns free partitions, then balances topic by topic.

It processes topics one by one, those with most partitions per subscriber first. A free partition goes to the topic's
least loaded subscriber; then partitions move from the most loaded subscriber to the least loaded one until their loads
differ by at most one. A move in one topic may unbalance another, so it repeats until nothing moves. A member's load is
the number of its partitions of all topics. Source: Kafka's ``UniformHeterogeneousAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from oncelog.coordinator.groups.assignors.spec import Assignment, GroupSpec
from oncelog.wire.schema import Uuid
from oncelog.wire.steps import Steps

ROUNDS_MAX = 16
NOBODY = -1
SORTED_PER_STEP = 16
"""Subscribers that are sorted in the time of one step."""


def assign(group: GroupSpec) -> Steps[dict[str, Assignment]]:
    return (yield from _Assigner(group).assign())


class _Balancer:
    """Chooses which subscriber of a topic gives the next partition, and which one gets it.

    Subscribers are sorted by load. The getters are those in front with equal loads; when each has got one, the next
    subscribers with the new load join them. The givers are those at the end, likewise. Members without partitions to
    give are removed from the givers.
    """

    def __init__(self, loads: list[int], subscribers: list[int]) -> None:
        self._loads = loads
        self._line = line = sorted(subscribers, key=lambda member: (loads[member], member))
        self._get_end = 0
        self._get_next = 0
        self._get_load = loads[line[0]] - 1
        self._give_start = self._give_end = len(line)
        self._give_next = len(line) - 1
        self._give_load = loads[line[-1]] + 1

    @property
    def imbalance(self) -> int:
        """The difference between the highest and the lowest load before the first move."""
        return self._loads[self._line[-1]] - self._loads[self._line[0]]

    def next_to_get(self) -> int:
        if self._get_next >= self._get_end:
            self._get_load += 1
            line, loads = self._line, self._loads
            while self._get_end < len(line) and loads[line[self._get_end]] == self._get_load:
                self._get_end += 1
            self._get_next = 0
        member = self._line[self._get_next]
        self._get_next += 1
        return member

    def next_to_give(self) -> int:
        """A member, or `NOBODY`."""
        if self._give_next < self._give_start:
            line, loads = self._line, self._loads
            if self._give_end <= self._give_start and self._give_start > 0:
                # All givers so far have been removed.
                self._give_load = loads[line[self._give_start - 1]]
            else:
                self._give_load -= 1
            while self._give_start > 0 and loads[line[self._give_start - 1]] == self._give_load:
                self._give_start -= 1
            self._give_next = self._give_end - 1
        if self._give_next < 0:
            return NOBODY
        member = self._line[self._give_next]
        self._give_next -= 1
        return member

    def remove_giver(self) -> None:
        """Remove the last member that `next_to_give` returned from the givers."""
        line, at, end = self._line, self._give_next + 1, self._give_end - 1
        line[at], line[end] = line[end], line[at]
        self._give_end = end

    @property
    def is_balanced(self) -> bool:
        return self._give_load - self._get_load <= 1


class _Assigner:
    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._member_ids = list(group.members)
        self._loads = [0] * len(self._member_ids)
        self._subscribers: dict[Uuid, list[int]] = {}
        self._owners: dict[Uuid, list[int]] = {}

    def assign(self) -> Steps[dict[str, Assignment]]:
        yield from self._read()
        if not self._subscribers:
            return {}
        yield from self._keep()
        for topic_id in self._in_order(t for t, owners in self._owners.items() if NOBODY in owners):
            yield from self._assign_free(topic_id)
        yield from self._balance(
            self._in_order(t for t, subscribers in self._subscribers.items() if len(subscribers) > 1)
        )
        return (yield from self._result())

    def _read(self) -> Steps[None]:
        for index, spec in enumerate(self._group.members.values()):
            for topic_id in spec.topics:
                self._subscribers.setdefault(topic_id, []).append(index)
                yield
        for topic_id in self._subscribers:
            self._owners[topic_id] = [NOBODY] * self._group.partitions[topic_id]

    def _in_order(self, topic_ids: Iterable[Uuid]) -> list[Uuid]:
        def place(topic_id: Uuid) -> tuple[float, int, Uuid]:
            count, subscribers = len(self._owners[topic_id]), len(self._subscribers[topic_id])
            return (-(count / subscribers), subscribers, _signed(topic_id))

        return sorted(topic_ids, key=place)

    def _keep(self) -> Steps[None]:
        """Keep all partitions of topics to which their members are still subscribed."""
        for index, spec in enumerate(self._group.members.values()):
            for topic_id, partitions in spec.assigned.items():
                if topic_id in spec.topics:
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        owners[partition] = index
                    self._loads[index] += len(partitions)
                yield

    def _balancer(self, topic_id: Uuid) -> Steps[_Balancer]:
        subscribers = self._subscribers[topic_id]
        yield from repeat(None, 1 + len(subscribers) // SORTED_PER_STEP)
        return _Balancer(self._loads, subscribers)

    def _assign_free(self, topic_id: Uuid) -> Steps[None]:
        owners = self._owners[topic_id]
        balancer = yield from self._balancer(topic_id)
        for partition, owner in enumerate(owners):
            if owner == NOBODY:
                member = owners[partition] = balancer.next_to_get()
                self._loads[member] += 1
                yield

    def _balance(self, topic_ids: list[Uuid]) -> Steps[None]:
        last_moved = NOBODY
        for _ in range(ROUNDS_MAX):
            for at, topic_id in enumerate(topic_ids):
                if at == last_moved:
                    return  # a full round without a move
                moved = yield from self._balance_topic(topic_id)
                if moved or last_moved == NOBODY:
                    last_moved = at

    def _balance_topic(self, topic_id: Uuid) -> Steps[bool]:
        """Move partitions between the topic's subscribers. Returns whether one moved."""
        balancer = yield from self._balancer(topic_id)
        if balancer.imbalance <= 1:
            return False
        owners = self._owners[topic_id]
        stocks: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            stocks.setdefault(owner, []).append(partition)
        moved = False
        while not balancer.is_balanced:
            giver = balancer.next_to_give()
            while giver != NOBODY and not stocks.get(giver):
                balancer.remove_giver()
                giver = balancer.next_to_give()
            if giver == NOBODY:
                break
            partition = stocks[giver].pop()
            getter = balancer.next_to_get()
            if balancer.is_balanced:
                break
            owners[partition] = getter
            self._loads[giver] -= 1
            self._loads[getter] += 1
            moved = True
            yield
        return moved

    def _result(self) -> Steps[dict[str, Assignment]]:
        rows: list[dict[Uuid, list[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                rows[owner].setdefault(topic_id, []).append(partition)
            yield
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in row.items()}
            for member_id, row in zip(self._member_ids, rows, strict=True)
        }


_SIGN_BITS = bytes((0x80, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0))


def _signed(topic_id: Uuid) -> bytes:
    """A sort key with the order of Kafka's ``Uuid.compareTo``: two signed halves."""
    return bytes(byte ^ sign for byte, sign in zip(topic_id, _SIGN_BITS, strict=True))
