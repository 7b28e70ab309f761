"""`OwnMetadata`: the metadata of a proxy's own: users, ACLs, quotas and delegation tokens, in a broker's log.

It is in memory and ends with the proxy, or in a data directory: `meta.properties`, which says that it is of a proxy and
of which cluster, and `__cluster_metadata-0`. Each change is on the disk before it is acknowledged.
"""

from __future__ import annotations

import random

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.log.data_directory import PROXY_NODE_ID, DataDirectory, DataDirectoryError
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.image import METADATA_VERSION
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.clock import Clock
from oncelog.broker.seams.files import FileSystem
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.wire.errors import DecodeError, KafkaError
from oncelog.wire.stored.metadata import FeatureLevelRecord

IN_MEMORY = "/proxy"

log = get_logger(__name__)


class OwnMetadata:
    """``data_dir`` None: in memory, and ``files`` are not used."""

    def __init__(self, data_dir: str | None, files: FileSystem, clock: Clock, rng: random.Random) -> None:
        """Open it; others cannot, until `close`. Raises DataDirectoryError if the data directory cannot be used."""
        self._is_kept = data_dir is not None
        if data_dir is None:
            data_dir, files = IN_MEMORY, MemoryFileSystem()
        self.data_dir = data_dir
        self._directory = DataDirectory(files, self.data_dir)
        self._directory.open(PROXY_NODE_ID, None, rng)
        self.store = MetadataStore(
            self.data_dir,
            files,
            clock,
            rng,
            # Not the proxy's configuration: an acknowledged change must outlive a loss of power, whatever that says.
            BrokerConfig({"log.flush.interval.messages": "1"}),
            cluster_id=self._directory.cluster_id,
            directory_id=self._directory.directory_id,
        )
        try:
            self.store.start()
            self._raise_level()
        except (KafkaError, DecodeError, OSError) as error:
            self._directory.release()
            raise DataDirectoryError.of(self.data_dir, error) from error

    def _raise_level(self) -> None:
        """Finalize the newest ``metadata.version``: no node of an older release reads what the proxy keeps, and clients
        cannot raise it, since their UpdateFeatures go to the cluster. Raises KafkaError.
        """
        _, newest = self.store.features.supported[METADATA_VERSION]
        if self.store.image.features[METADATA_VERSION] < newest:
            self.store.commit([FeatureLevelRecord(METADATA_VERSION, newest)])

    def note_cluster(self, cluster_id: str) -> None:
        """Upstream is this cluster. Raises CloseConnection if what is kept is another cluster's: its users must not
        come in here.
        """
        if not self._is_kept:
            return
        kept_of = self._directory.cluster_id
        if not kept_of:
            try:
                self._directory.set_cluster_id(cluster_id)
            except OSError as error:
                raise CloseConnection(str(DataDirectoryError.of(self.data_dir, error))) from error
        elif kept_of != cluster_id:
            raise CloseConnection(
                f"it is cluster {cluster_id}, and the users and ACLs in {self.data_dir} are for cluster {kept_of}: "
                "take another --data-dir, or change cluster.id in its meta.properties"
            )

    def close(self) -> None:
        """Close it, as the last step of a stop."""
        try:
            self.store.close(sync=self._is_kept)
        except OSError as error:
            log.error(
                "the proxy's own metadata could not be closed", data_dir=self.data_dir, error=str(error)
            )
        finally:
            self._directory.release()
