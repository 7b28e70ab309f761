"""`Bench`: what a trial runs against: a broker of its own (`oncelog.broker.prove.trials.own_broker`), or a Kafka
cluster behind a proxy of its own (`oncelog.broker.prove.trials.upstream`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from oncelog.broker.seams.address import address_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.control.journal import Observer
    from oncelog.broker.host.served import Served
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.wire.schema import Uuid

GroupMember = tuple[str, str]
"""A group, and the id of a member."""


class BrokerState(Protocol):
    """The facts that a `Watch` asks, at once, of the broker or cluster that serves the program."""

    @property
    def writes(self) -> int:
        """How much has been written so far: it grows with each write of the program."""

    def open_transactions(self) -> Iterable[tuple[str, int]]:
        """Return the transactional ids with an open transaction, each with its time-out in milliseconds."""

    def members(self) -> Iterable[GroupMember]:
        """Return the members of groups whose sessions can be hurried, those among them that have yet to join."""

    def ends(self, topic: str) -> Mapping[int, int]:
        """Return the last stable offset of each partition of a topic of the plan."""

    def topic_name(self, topic_id: Uuid) -> str:
        """Return the name of a topic; an empty one if it is unknown."""


class Nodes(Protocol):
    """The nodes of a bench that has several."""

    def kill(self, node_id: int) -> None:
        """Let a node die at once."""

    def cut_off(self, node_id: int) -> None:
        """Cut a node off from the others, but not from the controller."""

    def heal(self) -> None:
        """End the cuts."""

    async def move_leaders(self, node_id: int) -> None:
        """Let other replicas lead what a node leads, coordinators among them."""


class Bench(Protocol):
    """See the module. It serves one trial."""

    @property
    def controlled(self) -> Controlled:
        """The broker or the proxy. It has a listener for each instance."""

    @property
    def nodes(self) -> Nodes | None:
        """Its nodes, if it has several that can be disturbed."""

    @property
    def is_whole(self) -> bool:
        """All its nodes serve."""

    @property
    def is_settled(self) -> bool:
        """All its nodes serve, and each knows it of all others."""

    def address(self, listener: str) -> str:
        """Return the address with which an instance begins, of its listener."""

    def state(self, source: Served) -> BrokerState:
        """Return the state of a run of it."""

    async def prepare(self) -> None:
        """Make topics and inputs, now that it runs. Raises InvalidArgumentError, KafkaError."""

    async def look(self, last_activity: float) -> None:
        """Bring the state up to date, if the program has been quiet since ``last_activity`` (real time). Raises
        InvalidArgumentError if the trial must not go on.
        """

    async def groups(self) -> list[str]:
        """Return the ids of the trial's groups but share groups."""

    async def share_groups(self) -> list[str]:
        """Return the ids of the trial's share groups."""

    async def expire_members(self, members: Sequence[GroupMember]) -> None:
        """Let the sessions of members end whose processes are dead, or stand still."""

    async def expire_transactions(self, transactional_ids: Sequence[str]) -> Sequence[str]:
        """Let transactions time out, as far as they can be hurried; return those that have."""

    async def end_locks(self) -> None:
        """Let the locks of records in share groups end."""

    async def clean_up(self) -> None:
        """The trial is over, however it has ended: leave nothing behind. Raises KafkaError."""


class Ground(Protocol):
    """The common beginning of all trials of a proof: they start with the same data."""

    @property
    def output_ends(self) -> Mapping[str, Mapping[int, int]]:
        """Where the outputs of the program begin, by topic and partition."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables of the program's environment that say how it logs in."""

    @property
    def left_out(self) -> Sequence[str]:
        """The kinds of disturbances that it cannot take."""

    def bench(self, plan: ProofPlan, observer: Observer) -> Bench:
        """Return what a trial runs against. ``observer`` sees its requests. Raises InvalidArgumentError."""


def address_at(listeners: Iterable[BoundListener], name: str) -> str:
    """Return the address of the listener with that name."""
    return next(address_text(row.host, row.port) for row in listeners if row.name == name)
