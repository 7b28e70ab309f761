"""`ShareGroupStates`: initializes and deletes the states of a share group's partitions, and tells the group of the
outcome.

The group's own record names the partitions first, so that a start tries again after a crash. Source: Kafka's
``GroupCoordinatorService``, ``persisterInitialize``, ``deleteShareGroups``, ``deleteShareGroupOffsetsState``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.share.at_once import each
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from oncelog.broker.coordinators.groups import GroupCoordinator
    from oncelog.broker.scheduling.background_work import BackgroundWork
    from oncelog.broker.share.persister import SharePersister
    from oncelog.coordinator.groups.share.initialization import Initialization
    from oncelog.wire.schema import Uuid

Partition = tuple["Uuid", int]
Errors = dict[Partition, KafkaError]
"""Share partition (topic id, number) -> why its state could not be changed."""

_log = get_logger(__name__)


class ShareGroupStates:
    """Calls ``persister`` for ``groups``, and ``note_internal_error`` after work failed with an internal error."""

    def __init__(
        self,
        groups: GroupCoordinator,
        persister: SharePersister,
        background: BackgroundWork,
        note_internal_error: Callable[[], None],
    ) -> None:
        self._groups = groups
        self._persister = persister
        self._background = background
        self._note_internal_error = note_internal_error
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Initialize states beside requests, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def initialize_soon(self, begun: Initialization) -> None:
        """Initialize states after the current step; nobody waits for the result."""
        assert self._nursery is not None, "run first"
        self._nursery.start_soon(self._initialize_beside, begun)

    async def _initialize_beside(self, begun: Initialization) -> None:
        try:
            with self._background.running("initialization of share partitions"):
                errors = await self.initialize(begun)
        except KafkaError as error:
            errors = {}
            _log.warning("share partitions not noted as initialized", group=begun.group_id, error=str(error))
        except Exception:
            errors = {}
            _log.exception(
                "initialization of share partitions failed with an internal error", group=begun.group_id
            )
            self._note_internal_error()
        if errors:
            _log.warning(
                "share partitions not initialized",
                group=begun.group_id,
                partitions=len(errors),
                error=str(next(iter(errors.values()))),
            )

    async def initialize(self, begun: Initialization) -> Errors:
        """Initialize states, and note them in the group's record. Raises KafkaError if the record cannot be written."""
        from oncelog.coordinator.groups.share.initialization import initialized, not_initialized

        offsets = begun.start_offsets

        async def one(topic_id: Uuid, partition: int) -> None:
            await self._persister.initialize(
                begun.group_id, topic_id, partition, begun.state_epoch, offsets[topic_id][partition]
            )

        wanted = [(topic_id, partition) for topic_id, rows in offsets.items() for partition in rows]
        errors = await _each(wanted, one)
        shard = self._groups.runtime.shard_of(begun.group_id)
        done = [partition for partition in wanted if partition not in errors]
        initialized(shard, begun.group_id, _by_topic(done))
        not_initialized(shard, begun.group_id, _by_topic(errors))
        return errors

    async def delete(self, group_id: str, states: Mapping[Uuid, Iterable[int]]) -> Errors:
        """Delete states of a group's partitions."""

        async def one(topic_id: Uuid, partition: int) -> None:
            await self._persister.delete(group_id, topic_id, partition)

        return await _each([(topic_id, number) for topic_id, rows in states.items() for number in rows], one)


async def _each(partitions: Sequence[Partition], call: Callable[[Uuid, int], Awaitable[None]]) -> Errors:
    """Call ``call`` for each share partition, some at the same time. Returns the errors."""
    errors: Errors = {}

    async def one(partition: Partition) -> None:
        try:
            await call(*partition)
        except KafkaError as error:
            errors[partition] = error

    await each(partitions, one)
    return errors


def _by_topic(partitions: Iterable[Partition]) -> dict[Uuid, list[int]]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, number in partitions:
        found.setdefault(topic_id, []).append(number)
    return found
