"""The log directories of replicas (KIP-858), and which replicas are offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from oncelog.broker.metadata.image import MetadataImage, Partition
    from oncelog.wire.schema import Uuid
    from oncelog.wire.stored.metadata import RegisterBrokerRecord

MIGRATING, UNASSIGNED = bytes(16), bytes(15) + b"\x01"
"""Directories that nobody has told yet (``DirectoryId``)."""
LOST = bytes(15) + b"\x02"
"""The directory of a replica that failed (``DirectoryId``)."""


def directories_of(state: Partition) -> Iterator[tuple[int, Uuid]]:
    """Yield each replica with its directory. Records of before KIP-858 have no directories."""
    return zip(state.replicas, state.directories, strict=False)


def is_directory_online(broker: RegisterBrokerRecord, directory: Uuid) -> bool:
    """Whether a directory of a broker's replica has not failed (``DirectoryId.isOnline``)."""
    if directory in (MIGRATING, UNASSIGNED):
        return True
    return directory != LOST and (not broker.log_dirs or directory in broker.log_dirs)


def offline_replicas(image: MetadataImage, state: Partition, alive: Container[int]) -> list[int]:
    """Return the replicas whose broker is not ``alive``, or whose directory has failed
    (``KRaftMetadataCache.isReplicaOffline``).
    """
    offline = [node for node in state.replicas if node not in alive]
    offline += [
        node
        for node, directory in directories_of(state)
        if node in alive and not is_directory_online(image.brokers[node], directory)
    ]
    return offline
