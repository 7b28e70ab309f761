"""Members of share groups that send ShareFetch and ShareAcknowledge by hand, over a simulated connection.

Kafka does not ask whether they are members: what is stored of a share partition must be there, that is all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from oncelog.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from oncelog.wire.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgement
from oncelog.wire.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from oncelog.wire.primitives import Uuid
from oncelog.wire.stored.metadata import FeatureLevelRecord
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import SimClient

VERSION = 2
GROUP = "g"

Said = tuple[int, int, Sequence[int]]
"""First offset, last offset, types."""


async def serve_share_groups(
    broker: SimBroker, topic_id: Uuid, partitions: int = 1, *, group: str = GROUP, start_offset: int = 0
) -> None:
    """Do what a first heartbeat would do: share groups are enabled, and the share partitions initialized."""
    node = broker.node
    if not node.metadata.image.features.get("share.version"):
        node.metadata.commit([FeatureLevelRecord(name="share.version", feature_level=1)])
    for partition in range(partitions):
        await node.share_persister.initialize(group, topic_id, partition, 0, start_offset)


class ShareReader:
    """A member with a share session. ``epoch`` is that of its next request."""

    def __init__(
        self, client: SimClient, topic_id: Uuid, member_id: str = "m", group: str = GROUP, partitions: int = 1
    ) -> None:
        self.client = client
        self.topic_id = topic_id
        self.member_id = member_id
        self.group = group
        self.partitions = partitions
        self.epoch = 0

    def request(
        self,
        *said: Said,
        partition: int = 0,
        most: int = 500,
        wait_ms: int = 0,
        max_bytes: int = 1024 * 1024,
        **fields: Any,
    ) -> ShareFetchRequest:
        """A ShareFetch that continues the session; acknowledgements are about ``partition``."""
        rows = [FetchPartition(one) for one in range(self.partitions)] if self.epoch == 0 else []
        if said:
            rows = [FetchPartition(partition, [FetchAcknowledgement(a, b, list(c)) for a, b, c in said])]
        renews = any(4 in types for _, _, types in said)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=0 if renews else wait_ms,
            min_bytes=0 if renews else 1,
            max_bytes=0 if renews else max_bytes,
            max_records=0 if renews else most,
            batch_size=most,
            is_renew_ack=renews,
            topics=[FetchTopic(self.topic_id, rows)] if rows else [],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    async def call(self, request: ShareFetchRequest, version: int = VERSION) -> ShareFetchResponse:
        response: ShareFetchResponse = await self.client.call(request, version, ShareFetchResponse)
        if not response.error_code:
            self.epoch = -1 if self.epoch < 0 else self.epoch + 1
        return response

    async def fetch(self, *said: Said, **fields: Any) -> list[PartitionData]:
        """Fetch, and return the rows of the partitions."""
        response = await self.call(self.request(*said, **fields))
        assert response.error_code == 0, response
        return [row for topic in response.responses for row in topic.partitions]

    async def acquire(self, *said: Said, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch from one partition; return what was acquired: first offset, last offset, delivery count."""
        rows = await self.fetch(*said, **fields)
        assert all(not row.error_code and not row.acknowledge_error_code for row in rows), rows
        return [
            (one.first_offset, one.last_offset, one.delivery_count)
            for row in rows
            for one in row.acquired_records
        ]

    async def say(self, *said: Said, partition: int = 0, epoch: int | None = None) -> Any:
        """Acknowledge by ShareAcknowledge; return the response."""
        rows = [AcknowledgePartition(partition, [AcknowledgementBatch(a, b, list(c)) for a, b, c in said])]
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=any(4 in types for _, _, types in said),
            topics=[AcknowledgeTopic(self.topic_id, rows)] if said else [],
        )
        response = await self.client.call(request, VERSION, ShareAcknowledgeResponse)
        if not response.error_code:
            self.epoch += 1
        return response

    async def acknowledge(self, *said: Said, partition: int = 0) -> int:
        """Acknowledge; return the error code of the partition."""
        response = await self.say(*said, partition=partition)
        assert response.error_code == 0, response
        [topic] = response.responses
        [row] = topic.partitions
        code: int = row.error_code
        return code

    async def say_of_all(
        self, said: tuple[int, int, Sequence[int]], *, on_fetch: bool, beyond: Collection[int] = ()
    ) -> dict[int, int]:
        """Acknowledge the same of all partitions in one request; of those ``beyond`` what was never acquired. Returns
        the error code of each.
        """
        first, last, types = said
        asked = {
            one: [(first + 1000 * (one in beyond), last + 1000 * (one in beyond), list(types))]
            for one in range(self.partitions)
        }
        if on_fetch:
            topic = FetchTopic(
                self.topic_id,
                [
                    FetchPartition(one, [FetchAcknowledgement(*row) for row in rows])
                    for one, rows in asked.items()
                ],
            )
            found = await self.call(self.request(most=0, topics=[topic]))
            return {
                row.partition_index: row.acknowledge_error_code
                for topic_row in found.responses
                for row in topic_row.partitions
            }
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            topics=[
                AcknowledgeTopic(
                    self.topic_id,
                    [
                        AcknowledgePartition(one, [AcknowledgementBatch(*row) for row in rows])
                        for one, rows in asked.items()
                    ],
                )
            ],
        )
        response = await self.client.call(request, VERSION, ShareAcknowledgeResponse)
        assert response.error_code == 0, response
        self.epoch += 1
        [done] = response.responses
        return {row.partition_index: row.error_code for row in done.partitions}

    async def leave(self) -> ShareFetchResponse:
        """End the session."""
        self.epoch = -1
        return await self.call(self.request(max_bytes=0, most=0))

    def forget(self, partition: int) -> list[ForgottenTopic]:
        return [ForgottenTopic(self.topic_id, [partition])]
