"""`AsyncShareGroup`: a share group of a broker, as a test reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.control.share_types import (
        DeadLetter,
        RecordsInFlight,
        ShareGroupInfo,
        ShareMember,
        SharePartitionInfo,
    )
    from oncelog.broker.control.types import Occurrence
    from oncelog.broker.embedded.async_api.facade import AsyncFacade


class AsyncShareGroup:
    """The share group ``group_id`` as it is at each call. Its properties raise NotFoundError if it does not exist."""

    def __init__(self, broker: AsyncFacade, group_id: str) -> None:
        self._broker = broker
        self.group_id = group_id

    @property
    async def info(self) -> ShareGroupInfo:
        """All there is to know, at one moment."""
        info: ShareGroupInfo = await self._broker._call("share_group", group_id=self.group_id)
        return info

    @property
    async def state(self) -> str:
        """As Kafka's tools show it: Empty, Stable."""
        return (await self.info).state

    @property
    async def members(self) -> tuple[ShareMember, ...]:
        """Its members, with client id, host and assignment."""
        return (await self.info).members

    @property
    async def partitions(self) -> dict[str, dict[int, SharePartitionInfo]]:
        """The partitions that it reads, by topic: start offset, records in flight, lag."""
        return (await self.info).partitions

    @property
    async def in_flight(self) -> dict[str, dict[int, tuple[RecordsInFlight, ...]]]:
        """The records in flight by topic and partition, with state, delivery count, member and lock, where there are
        any. Raises UnsupportedError of a cluster, also through a proxy: it does not tell them.
        """
        return (await self.info).in_flight

    async def configure(self, config: Mapping[str, object]) -> None:
        """Set Kafka's configuration keys of the group: ``{"share.auto.offset.reset": "earliest"}``. It need not exist
        yet. Raises InvalidArgumentError for a key or value that Kafka refuses.
        """
        await self._broker._call("configure_group", group_id=self.group_id, config=dict(config))

    async def expire_member(self, member: str) -> list[Occurrence]:
        """Let the session of the member with that id expire now, as if it had sent no heartbeat for so long. A client
        that is alive joins again.

        Returns the work that followed. Raises NotFoundError.
        """
        result: list[Occurrence] = await self._broker._call(
            "expire_member", group_id=self.group_id, member=member
        )
        return result

    async def wait_for(
        self,
        *,
        state: str | None = None,
        members: int | None = None,
        acquired: int | None = None,
        lag: int | None = None,
        timeout: float = 10,
    ) -> ShareGroupInfo:
        """Wait until the group matches all given arguments; return it. It need not exist yet.

            kafka.share_group("jobs").wait_for(acquired=3)
            kafka.share_group("jobs").wait_for(lag=0)

        acquired: its members have exactly so many records.
        lag: at most so many records in all are neither acknowledged nor archived. A group that has read nothing yet has
            no lag, not one of 0.
        timeout: seconds of real time. WaitTimeoutError describes the group as it is instead.
        """
        info: ShareGroupInfo = await self._broker._call(
            "wait_for_share_group",
            group_id=self.group_id,
            state=state,
            members=members,
            acquired=acquired,
            lag=lag,
            timeout=timeout,
        )
        return info

    async def dead_letters(self) -> list[DeadLetter]:
        """Return the group's records in its dead-letter queue, by the queue's partition and offset, each with the
        position of the record for which it stands and the reason.

        Records of other groups in the same queue are left out. Raises NotFoundError if the group has no queue
        (``errors.deadletterqueue.topic.name``), or the topic does not exist.
        """
        letters: list[DeadLetter] = await self._broker._call("dead_letters", group_id=self.group_id)
        return letters

    async def wait_for_dead_letters(self, count: int = 1, *, timeout: float = 10) -> list[DeadLetter]:
        """Wait until the group has at least so many records in its dead-letter queue; return them all, as
        `dead_letters`. Neither the group nor the queue need exist yet.

        timeout: seconds of real time. WaitTimeoutError says how many there were instead, and why the last record got
            none.
        """
        letters: list[DeadLetter] = await self._broker._call(
            "wait_for_dead_letters", group_id=self.group_id, count=count, timeout=timeout
        )
        return letters

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group_id}>"
