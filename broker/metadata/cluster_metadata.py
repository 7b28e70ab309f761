"""`ClusterMetadata`: the image of the cluster's metadata, as a node has it, and who is told of changes.

`MetadataStore` is that of a controller, which also changes it; `MetadataReplica` that of a node that follows one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.metadata.features import OUR_FEATURES
from oncelog.broker.metadata.image import MetadataImage
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.schema import ZERO_UUID, Uuid

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.features import Features
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.schema import Message

    RecordListener = Callable[[Message, Topic | None], None]

_RESERVED_UUIDS = frozenset({ZERO_UUID, bytes(15) + b"\x01"})
_DASH = 62
"""The index of ``-`` in URL-safe base64."""


class ClusterMetadata:
    """``config`` is the static configuration, without dynamic changes.

    ``broker_epoch`` is the epoch of this start's registration, -1 before it. ``features`` are those that clients are
    told of and may finalize.
    """

    is_controller = False
    """Whether it may be changed here."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        config: BrokerConfig,
        *,
        cluster_id: str,
        directory_id: Uuid,
        supported: Features = OUR_FEATURES,
    ) -> None:
        self.config = config
        self.features = supported
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.image = MetadataImage()
        self.broker_epoch = -1
        self.lines = LineLimiter(clock)
        self._clock = clock
        self.rng = rng
        """Makes ids, and places replicas."""
        self._listeners: list[RecordListener] = []
        self.changed = trio.Event()
        """Set with the next change of the image."""

    def subscribe(self, listener: RecordListener) -> None:
        """Call ``listener(record, topic)`` for every record from now on, after the image has the whole batch. ``topic``
        is the topic that the record created, changed or removed, or None.
        """
        self._listeners.append(listener)

    def _replay(self, records: Sequence[Message], last_offset: int) -> None:
        """Replay a batch, and call the listeners for each of its records."""
        image = self.image
        changes = [(record, image.replay(record)) for record in records]
        image.offset = last_offset
        for record, topic in changes:
            for listener in self._listeners:
                listener(record, topic)
        if self.changed.statistics().tasks_waiting:
            self.changed.set()
            self.changed = trio.Event()

    def commit(self, records: Sequence[Message], *, durable: bool = False) -> int:
        """See `MetadataStore.commit`. Raises KafkaError: NOT_CONTROLLER."""
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def new_uuid(self) -> Uuid:
        """Return a random (version 4) UUID that Kafka would give out (``Uuid.randomUuid``): not a reserved one, and its
        text does not begin with ``-``, which command lines would take for an option."""
        while True:
            bits = self.rng.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62
            uuid = bits.to_bytes(16, "big")
            if uuid not in _RESERVED_UUIDS and uuid[0] >> 2 != _DASH:
                return uuid
