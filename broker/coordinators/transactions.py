"""`TransactionCoordinator`: the broker's side of transactional ids.

If the markers of the id's last transaction are not written yet, a request waits for them up to
`TRANSACTION_END_WAIT_S`, and gets CONCURRENT_TRANSACTIONS after that. Source: Kafka's class of that name,
``TransactionStateManager``. The state of transactions is in `oncelog.coordinator.transactions`. The first shard imports
its modules, so that a node without transactions starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.coordinators.marker_writer import MarkerWriter
from oncelog.broker.coordinators.runtime import CoordinatorRuntime, M
from oncelog.broker.coordinators.shard import without_timers
from oncelog.broker.metadata.image import TRANSACTION_VERSION
from oncelog.broker.requests.request import Pending
from oncelog.broker.seams.clock import real_time
from oncelog.wire.batch import NO_SEQUENCE
from oncelog.wire.compression import NONE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.topic_names import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.coordinators.environment import CoordinatorEnvironment
    from oncelog.broker.coordinators.groups import GroupCoordinator
    from oncelog.broker.coordinators.log import CoordinatorLog
    from oncelog.coordinator.transactions.shard import TransactionContext, TransactionShard
    from oncelog.wire.schema import Message

TRANSACTION_END_WAIT_S = 0.1
"""Seconds of real time that a request waits for the end of its id's last transaction."""


class TransactionCoordinator:
    """Builds the shards of ``__transaction_state`` for its ``runtime``, and runs the steps of requests in them."""

    BASE_SEQUENCE = NO_SEQUENCE
    SKIPS_VERSIONS = True
    RELOADS = True
    IS_ACKS_ALL = True

    def __init__(
        self,
        environment: CoordinatorEnvironment,
        groups: GroupCoordinator,
        next_producer_id: Callable[[], int],
    ) -> None:
        self._metadata = environment.metadata
        self._config = environment.config
        self._clock = environment.clock
        self._came_due = environment.background.timer_event
        self._next_producer_id = next_producer_id
        self._context: TransactionContext | None = None
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTIONS_TOPIC, self, environment
        )
        self.markers = MarkerWriter(self.runtime, groups, environment)

    @property
    def context(self) -> TransactionContext:
        if self._context is None:
            from oncelog.coordinator.transactions.shard import TransactionContext

            self._context = TransactionContext(
                now_ms=self._clock.now_ms,
                deadlines=self.runtime.timer.deadlines,
                settings=lambda: self._config.current,
                transaction_version=self.transaction_version,
                next_producer_id=self._next_producer_id,
                on_prepared=self.markers.on_prepared,
                timer_event=self._came_due,
            )
        return self._context

    def transaction_version(self) -> int:
        """Return the finalized level of ``transaction.version``."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, 0)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load shards, run timers and finish transactions, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.markers.run)
            await nursery.start(self.runtime.run)
            task_status.started()

    # -- ShardBuilder

    def build(self, partition: int, log: CoordinatorLog) -> TransactionShard:
        from oncelog.coordinator.transactions.shard import TransactionShard

        return TransactionShard(partition, log.leader_epoch, log, self.context)

    def build_view(self, partition: int, log: CoordinatorLog) -> TransactionShard:
        from oncelog.coordinator.transactions.shard import TransactionShard

        return TransactionShard(partition, log.leader_epoch, log, without_timers(self.context, self._clock))

    def record_types(self) -> tuple[Mapping[int, type[Message]], Mapping[int, type[Message]]]:
        from oncelog.wire.stored.transactions import KEY_TYPES, VALUE_TYPES

        return KEY_TYPES, VALUE_TYPES

    def codec(self) -> int:
        return NONE

    def write_timeout_ms(self) -> int:
        return self._config.current.transaction_max_timeout_ms

    def on_shard_loaded(self, shard: TransactionShard) -> None:
        pass

    # -- requests

    def shard(self, transactional_id: str) -> TransactionShard:
        """Return the shard that stores the id, for a request about it (`CoordinatorRuntime.shard_for`).

        Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
        """
        return self.runtime.shard_for(transactional_id)

    def serve(
        self,
        transactional_id: str,
        step: Callable[[TransactionShard], M],
        error_response: Callable[[KafkaError], M],
    ) -> M | Pending[M]:
        """Run ``step`` in the id's shard. Returns the response, or a `Pending` one.

        ``error_response`` makes the response for a KafkaError.
        """
        try:
            shard = self.shard(transactional_id)
            response = self._run_step(shard, transactional_id, step)
        except KafkaError as error:
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and self.markers.is_ending(
                shard, transactional_id
            ):
                return Pending(self._serve_after_end(shard, transactional_id, step, error_response))
            return error_response(error)
        if self.markers.is_ending(shard, transactional_id):
            return Pending(self._respond_after_end(shard, transactional_id, response, error_response))
        timeout_ms = _timeout_ms(shard, transactional_id)
        return self.runtime.respond([shard], response, error_response, timeout_ms)

    def _run_step(
        self, shard: TransactionShard, transactional_id: str, step: Callable[[TransactionShard], M]
    ) -> M:
        """Run ``step``. If it first ended the id's last transaction, and that is complete by now, run it again."""
        try:
            return step(shard)
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS or self.markers.is_ending(
                shard, transactional_id
            ):
                raise
            return step(shard)

    async def _serve_after_end(
        self,
        shard: TransactionShard,
        transactional_id: str,
        step: Callable[[TransactionShard], M],
        error_response: Callable[[KafkaError], M],
    ) -> M:
        """Wait for the end of the id's last transaction and run ``step`` again."""
        await self.markers.wait_ended(shard, transactional_id, real_time.monotonic() + TRANSACTION_END_WAIT_S)
        try:
            response = self._run_step(self.shard(transactional_id), transactional_id, step)
        except KafkaError as error:
            return error_response(error)
        return await self._respond_durable(shard, transactional_id, response, error_response)

    async def _respond_after_end(
        self,
        shard: TransactionShard,
        transactional_id: str,
        response: M,
        error_response: Callable[[KafkaError], M],
    ) -> M:
        """Return ``response`` when the decision is on the disk, and after the markers if they are written soon."""
        await self.markers.wait_ended(shard, transactional_id, real_time.monotonic() + TRANSACTION_END_WAIT_S)
        return await self._respond_durable(shard, transactional_id, response, error_response)

    async def _respond_durable(
        self,
        shard: TransactionShard,
        transactional_id: str,
        response: M,
        error_response: Callable[[KafkaError], M],
    ) -> M:
        timeout_ms = _timeout_ms(shard, transactional_id)
        return await self.runtime.respond_durable([shard], response, error_response, timeout_ms)


def _timeout_ms(shard: TransactionShard, transactional_id: str) -> int | None:
    """Return for how long a response waits for other replicas: as long as a transaction of the id may be open, as in
    Kafka.
    """
    transaction = shard.transactions.get(transactional_id)
    return None if transaction is None else transaction.metadata.timeout_ms
