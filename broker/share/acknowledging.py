"""`Acknowledging`: the acknowledgements of a ShareFetch or a ShareAcknowledge, for all its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.share.at_once import each
from oncelog.broker.share.window.acknowledgement import RENEW, Acknowledgement
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.share.manager import SharePartitionManager
    from oncelog.broker.share.partition import Storing
    from oncelog.broker.share.sessions import PartitionKey
    from oncelog.wire.messages import share_acknowledge, share_fetch

    Batch = share_fetch.AcknowledgementBatch | share_acknowledge.AcknowledgementBatch

RENEW_VERSION = 2
"""The version of both APIs that has renewed locks (KIP-1222)."""

Asked = tuple["PartitionKey", "Sequence[Batch]"]


class Acknowledging:
    """The acknowledgements of one request: they hold when `finish` returns (``KafkaApis.handleAcknowledgements``)."""

    def __init__(
        self, stores: list[tuple[PartitionKey, Storing]], results: dict[PartitionKey, KafkaError]
    ) -> None:
        """``stores``: the transitions under way; ``results``: of the partitions without one."""
        self._stores = stores
        self._results = results

    @classmethod
    def begin(
        cls,
        manager: SharePartitionManager,
        cluster: Cluster,
        group_id: str,
        member_id: str,
        asked: Iterable[Asked],
        may_read: Callable[[str], bool] | None,
        *,
        types_max: int,
        is_renew: bool,
    ) -> Acknowledging:
        """Begin the transitions that are ``asked`` for; `finish` or `abandon` ends them."""
        results: dict[PartitionKey, KafkaError] = {}
        stores: list[tuple[PartitionKey, Storing]] = []
        without_acknowledgements: list[PartitionKey] = []
        has_acknowledgements = False
        for key, batches in asked:
            try:
                topic = cluster.topic_by_id(key[0])
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                acknowledgements = _checked(batches, types_max, is_renew)
                if may_read is not None and not may_read(topic.name):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if not 0 <= key[1] < len(topic.partitions):
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if not acknowledgements:
                    without_acknowledgements.append(key)
                    continue
                has_acknowledgements = True
                partition = manager.get(group_id, *key)
                if partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION)
                stores.append((key, partition.acknowledge(member_id, acknowledgements)))
            except KafkaError as error:
                results[key] = error
        # Kafka has rows for partitions without acknowledgements only if another one has some.
        if has_acknowledgements:
            results.update(dict.fromkeys(without_acknowledgements, DONE))
        return cls(stores, results)

    async def finish(self) -> dict[PartitionKey, KafkaError]:
        """Store them. Returns the result of each partition: an error with code NONE for success."""
        self._results.update((key, DONE) for key, _ in self._stores)

        async def store(one: tuple[PartitionKey, Storing]) -> None:
            key, storing = one
            try:
                await storing.run()
            except KafkaError as error:
                self._results[key] = error

        await each(self._stores, store)
        return self._results

    def abandon(self) -> None:
        """Undo the transitions that were not stored."""
        for _, storing in self._stores:
            storing.abandon()


DONE = KafkaError(ErrorCode.NONE)
UNKNOWN_PARTITION = "This server does not host this topic-partition."


def _checked(batches: Sequence[Batch], types_max: int, is_renew: bool) -> list[Acknowledgement]:
    """Return the batches. Raises KafkaError (INVALID_REQUEST) unless they are in order, with known types, one for the
    batch or one for each offset (``KafkaApis.validateAcknowledgementBatches``).
    """
    before = -1
    found = []
    for batch in batches:
        types = batch.acknowledge_types
        if (
            batch.first_offset > batch.last_offset
            or batch.first_offset < before
            or not types
            or (len(types) > 1 and len(types) != batch.last_offset - batch.first_offset + 1)
            or not 0 <= min(types) <= max(types) <= types_max
            or (RENEW in types and not is_renew)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        before = batch.last_offset
        found.append(Acknowledgement(batch.first_offset, batch.last_offset, types))
    return found
