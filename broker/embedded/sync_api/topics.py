# Made by .ci/unasync.py from async_api/topics.py: edit that one.
"""`Topic`: a topic of a broker, as a test reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.broker.control.errors import InvalidArgumentError

if TYPE_CHECKING:
    from oncelog.broker.control.types import (
        IsolationLevel,
        PartitionState,
        ProducerInfo,
        Record,
        TopicInfo,
    )
    from oncelog.broker.embedded.sync_api.facade import Facade


class Topic:
    """The topic ``name``, as it is at each call. All but the name raise NotFoundError if it does not exist."""

    def __init__(self, broker: Facade, name: str) -> None:
        self._broker = broker
        self.name = name

    def records(
        self,
        *,
        isolation: IsolationLevel = "read_uncommitted",
        partition: int | None = None,
        from_offset: int = 0,
        limit: int | None = None,
    ) -> list[Record]:
        """Return the topic's records, by partition and offset, as a consumer sees them: without control records.

        isolation: as a consumer's ``isolation.level``, and with the same default. With "read_committed", records of
            aborted transactions are left out, and all from the first record of an open transaction on.
        partition: only this one.
        from_offset: in every partition that is read.
        limit: at most so many records.
        """
        records: list[Record] = self._broker._call(
            "records",
            topic=self.name,
            isolation=isolation,
            partition=partition,
            from_offset=from_offset,
            limit=limit,
        )
        return records

    def wait_for_records(
        self,
        count: int = 1,
        *,
        isolation: IsolationLevel = "read_uncommitted",
        partition: int | None = None,
        timeout: float = 10,
    ) -> list[Record]:
        """Wait until the topic has at least so many records; return them all, by partition and offset.

        The topic need not exist yet.

        isolation: only records that a consumer with this ``isolation.level`` sees.
        timeout: seconds of real time. WaitTimeoutError says what there was instead, and which open transactions hold
            records back.
        """
        records: list[Record] = self._broker._call(
            "wait_for_records",
            topic=self.name,
            count=count,
            isolation=isolation,
            partition=partition,
            timeout=timeout,
        )
        return records

    @property
    def info(self) -> TopicInfo:
        """All there is to know but the records, at one moment."""
        info: TopicInfo = self._broker._call("topic", name=self.name)
        return info

    @property
    def start_offsets(self) -> dict[int, int]:
        """The log start offset of each partition."""
        return {row.partition: row.log_start_offset for row in (self.info).partitions}

    @property
    def end_offsets(self) -> dict[int, int]:
        """The high watermark of each partition: the end offsets of a consumer."""
        return {row.partition: row.high_watermark for row in (self.info).partitions}

    @property
    def last_stable_offsets(self) -> dict[int, int]:
        """The last stable offset of each partition: the end offsets of a consumer that reads only what is committed."""
        return {row.partition: row.last_stable_offset for row in (self.info).partitions}

    @property
    def partitions(self) -> list[PartitionState]:
        """Its partitions: leader, epochs, replicas in sync, and the offsets of each replica whose node runs."""
        partitions: list[PartitionState] = self._broker._call("partitions", topic=self.name)
        return partitions

    def wait_for_partition(
        self,
        partition: int,
        *,
        leader: int | None = None,
        isr: Iterable[int] | None = None,
        timeout: float = 10,
    ) -> PartitionState:
        """Wait until a partition has that leader and exactly these replicas in sync; return it. Both are optional;
        without them, wait until it has a leader that runs.

        timeout: seconds of real time. WaitTimeoutError says what it had instead.
        """
        if isr is not None and not isinstance(isr, Iterable):
            raise InvalidArgumentError(f"isr={isr!r}: expected the ids of nodes, such as [1, 2]")
        found: PartitionState = self._broker._call(
            "wait_for_partition",
            topic=self.name,
            partition=partition,
            leader=leader,
            isr=None if isr is None else sorted(isr),
            timeout=timeout,
        )
        return found

    @property
    def config(self) -> dict[str, str | None]:
        """The value in effect of every configuration key; `info` has apart those that were set on the topic."""
        return (self.info).config

    @property
    def producers(self) -> list[ProducerInfo]:
        """The idempotent and transactional producers that its partitions know, by partition and producer id."""
        producers: list[ProducerInfo] = self._broker._call("producers", topic=self.name)
        return producers

    def delete_records(self, before: dict[int, int] | None = None) -> dict[int, int]:
        """Delete the records below an offset: ``{partition: offset}``; without ``before``, all records.

        Returns the log start offsets. Raises KafkaError: POLICY_VIOLATION for a compacted topic, OFFSET_OUT_OF_RANGE.
        """
        offsets: dict[int, int] = self._broker._call("delete_records", topic=self.name, before=before)
        return offsets

    def delete(self) -> None:
        """Delete the topic."""
        self._broker._call("delete_topic", name=self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
