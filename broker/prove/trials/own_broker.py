"""`OwnBroker`: a broker of oncelog of the trial's own, whose time moves. `OwnBench`: any number of nodes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError, NotRunningError
from oncelog.broker.prove.trials.bench import address_at
from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.transactions.state import TransactionState
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.host.served import Served
    from oncelog.broker.node.node import Node
    from oncelog.broker.prove.trials.bench import BrokerState, GroupMember, Nodes
    from oncelog.wire.schema import Uuid

OPEN: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
LOCK_S: Final = 31
"""Seconds of broker time after which a lock of a share group, by default of 30, is over."""


class OwnBench:
    """The part of `oncelog.broker.prove.trials.bench.Bench` that one node and several have in common: there is nothing
    to prepare, and nothing is left.
    """

    def __init__(self, controlled: Controlled) -> None:
        self.controlled = controlled

    async def prepare(self) -> None:
        pass

    async def look(self, last_activity: float) -> None:
        pass

    async def groups(self) -> list[str]:
        groups: list[str] = await self.controlled.call("groups", {})
        return groups

    async def share_groups(self) -> list[str]:
        groups: list[str] = await self.controlled.call("share_groups", {})
        return groups

    async def expire_members(self, members: Sequence[GroupMember]) -> None:
        for group, member in members:
            # Others may have taken its place, or it has left.
            with suppress(NotFoundError, InvalidArgumentError, NotRunningError):
                await self.controlled.call("expire_member", {"group_id": group, "member": member})

    async def expire_transactions(self, transactional_ids: Sequence[str]) -> Sequence[str]:
        for transactional_id in transactional_ids:
            with suppress(NotFoundError, InvalidArgumentError, NotRunningError, KafkaError):
                await self.controlled.call("expire_transaction", {"transactional_id": transactional_id})
        return transactional_ids

    async def end_locks(self) -> None:
        await self.controlled.call("clock_advance", {"seconds": LOCK_S})

    async def clean_up(self) -> None:
        pass


class OwnBroker(OwnBench):
    """See the module, and `oncelog.broker.prove.trials.bench.Bench`."""

    nodes: Nodes | None = None

    def __init__(self, broker: ControlledBroker) -> None:
        super().__init__(broker)
        self._broker = broker

    def state(self, source: Served) -> BrokerState:
        return NodeState(source)  # type: ignore[arg-type]

    @property
    def is_whole(self) -> bool:
        return self._broker.is_running

    @property
    def is_settled(self) -> bool:
        return self.is_whole

    def address(self, listener: str) -> str:
        return address_at(self._broker.runs.listeners, listener)

    async def create_internal_topic(self, name: str) -> None:
        """Create an internal topic, if it is missing."""
        self._broker.node.services.auto_topics.ensure(name)

    def log_end_offsets(self, topic: str) -> dict[int, int]:
        """Return the log end offset of each partition of a topic."""
        node = self._broker.node
        return {
            index: node.cluster.leader_partition(topic, index).log.log_end_offset
            for index, _ in enumerate(node.metadata.image.topics[topic].partitions)
        }


class NodeState:
    """The facts that a node knows; see `oncelog.broker.prove.trials.bench.BrokerState`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def writes(self) -> int:
        """The number of records in all logs."""
        return sum(log.log_end_offset for log in self._node.logs.logs.values())

    def open_transactions(self) -> Iterator[tuple[str, int]]:
        return open_transactions(self._node)

    def members(self) -> Iterator[GroupMember]:
        return group_members(self._node)

    def ends(self, topic: str) -> dict[int, int]:
        partitions = self._node.metadata.image.topics[topic].partitions
        return {
            index: self._node.cluster.leader_partition(topic, index).log.last_stable_offset
            for index, _ in enumerate(partitions)
        }

    def topic_name(self, topic_id: Uuid) -> str:
        found = self._node.metadata.image.topics_by_id.get(topic_id)
        return "" if found is None else found.name


def open_transactions(node: Node) -> Iterator[tuple[str, int]]:
    """Yield the open transactions that a node coordinates: the id of each, and its time-out in milliseconds."""
    for context in node.transactions.runtime.loaded.values():
        for transactional_id, transaction in context.shard.transactions.items():
            if transaction.metadata.state in OPEN:
                yield transactional_id, transaction.metadata.timeout_ms


def group_members(node: Node) -> Iterator[GroupMember]:
    """Yield the members of the groups that a node coordinates, those among them that have yet to join."""
    for context in node.groups.runtime.loaded.values():
        for group_id, group in context.shard.groups.items():
            pending = group.pending_joins if isinstance(group, ClassicGroup) else ()
            for member_id in (*group.member_ids(), *pending):
                yield group_id, member_id
