# Made by .ci/unasync.py from async_api/groups.py: edit that one.
"""`Group`: a consumer group of a broker, as a test reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.broker.control.types import GroupInfo, IsolationLevel, Member, Occurrence, Offsets
    from oncelog.broker.embedded.sync_api.facade import Facade


class Group:
    """The group ``group_id``, of either protocol, as it is at each call. Its properties raise NotFoundError if it does
    not exist.
    """

    def __init__(self, broker: Facade, group_id: str, isolation: IsolationLevel) -> None:
        self._broker = broker
        self.group_id = group_id
        self.isolation = isolation

    @property
    def info(self) -> GroupInfo:
        """All there is to know, at one moment."""
        info: GroupInfo = self._broker._call("group", group_id=self.group_id, isolation=self.isolation)
        return info

    @property
    def state(self) -> str:
        """As Kafka's tools show it: Empty, PreparingRebalance, CompletingRebalance, Stable; with the consumer protocol
        Empty, Assigning, Reconciling, Stable.
        """
        return (self.info).state

    @property
    def members(self) -> tuple[Member, ...]:
        """Its members, with client id, host and assignment."""
        return (self.info).members

    @property
    def committed(self) -> Offsets:
        """The committed offsets: ``{"orders": {0: 5}}``, where 5 is the offset of the record to be read next."""
        return (self.info).committed

    @property
    def lag(self) -> Offsets:
        """How many records each partition has after the committed offset, or has at all where none was committed, for
        the partitions with a committed offset and those of subscribed topics: ``{"orders": {0: 0, 1: 3}}``.
        """
        return (self.info).lag

    def expire_member(self, member: str) -> list[Occurrence]:
        """Let the session of a member expire now, as if it had sent no heartbeat for so long. ``member`` is its member
        id, or its ``group.instance.id``. A client that is alive joins again as a new member.

        Returns the work that followed. Raises NotFoundError; InvalidArgumentError while the member waits for a
        rebalance.
        """
        result: list[Occurrence] = self._broker._call(
            "expire_member", group_id=self.group_id, member=member
        )
        return result

    def wait_for(
        self,
        *,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        committed: Offsets | None = None,
        timeout: float = 10,
    ) -> GroupInfo:
        """Wait until all holds that is given; return what there is then. The group need not exist yet.

            kafka.group("billing").wait_for(state="Stable", members=2)
            kafka.group("billing").wait_for(lag=0)

        lag: at most so many records in all are left to be committed. A group without a committed offset and without a
            subscribed topic has no lag, not one of 0.
        committed: at least these offsets, by whichever request: ``{"orders": {0: 5}}``.
        timeout: seconds of real time. WaitTimeoutError says what there was instead.
        """
        info: GroupInfo = self._broker._call(
            "wait_for_group",
            group_id=self.group_id,
            state=state,
            members=members,
            lag=lag,
            committed=committed,
            isolation=self.isolation,
            timeout=timeout,
        )
        return info

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets, as a client without a group does: ``{"orders": {0: 5}}``. A group that does not exist is
        created.

        Raises KafkaError: UNKNOWN_MEMBER_ID while the group has members, GROUP_ID_NOT_FOUND for a share group, which
        has no committed offsets; NotFoundError for an unknown partition.
        """
        self._broker._call("commit_offsets", group_id=self.group_id, offsets=offsets)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group_id}>"
