"""`MetadataReplica`: the metadata of a node that follows a controller (Kafka: ``MetadataLoader``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
from oncelog.broker.metadata.frames import Batches
from oncelog.broker.metadata.image import MetadataImage
from oncelog.broker.metadata.snapshots import decode
from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from oncelog.wire.messages.fetch import PartitionData
    from oncelog.wire.messages.fetch_snapshot import PartitionResult


class MetadataReplica(ClusterMetadata):
    """An image that changes as the batches of the controller say. See `ClusterMetadata`."""

    def load(self, snapshot: PartitionResult) -> None:
        """Begin with a snapshot; nobody has used the image yet. Raises DecodeError."""
        data: Any = snapshot.unaligned_records
        records, _ = decode(bytes(data), "the controller's snapshot")
        image = MetadataImage()
        for record in records:
            image.replay(record)
        image.offset = snapshot.snapshot_id.end_offset - 1
        self.features.check(image)
        self.image = image

    def append(self, row: PartitionData) -> None:
        """Replay the batches of a fetched row. Raises DecodeError if they do not follow what is here."""
        data: Any = row.records
        batches = Batches(bytes(data), self.image.offset + 1)
        for position, header in batches:
            if header.is_control:
                self.image.offset = header.last_offset
            else:
                self._replay(list(batches.records(position, header)), header.last_offset)
        if batches.reason:
            raise DecodeError(f"metadata of the controller: {batches.reason}")
