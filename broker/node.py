"""One broker: what it is made of, started and stopped in order.

Start: the data directory (lock, identity), the metadata log, the partition logs, the listeners. Stop, in reverse: no
more connections, then every log written out and the clean-shutdown mark last.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import trio
from coordinator.producer_ids import ProducerIds

from broker.cluster import Cluster, Endpoint
from broker.fetch_sessions import FetchSessions
from broker.log.manager import LogManager
from broker.logs import get_logger
from broker.metadata.store import MetadataStore
from broker.server import Listener, Server

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.seams.clock import Clock
    from broker.seams.files import FileSystem
    from wire.schema import Message

log = get_logger("broker.node")


class Node:
    """A broker on one data directory. All that touches the outside comes in: files, wall time, chance, listeners."""

    def __init__(self, config: BrokerConfig, *, files: FileSystem, clock: Clock, rng: random.Random) -> None:
        self.config = config
        self.files = files
        self.clock = clock
        self.random = rng
        self.fail_on_bugs = False
        """Whether an error of our own ends the process (tests) instead of one request (service)."""
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock, rng)
        self.logs: LogManager
        self.metadata: MetadataStore
        self.cluster: Cluster
        self._producer_ids: ProducerIds

    async def run(
        self,
        listeners: list[Listener],
        *,
        advertised: tuple[str, int] | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled, then stop cleanly. ``advertised``: where clients are told to come (default: where
        the first listener is).

        Raises BlockingIOError where another process holds the data directory.
        """
        self._open()
        host, port = advertised or listeners[0].address
        self.cluster.endpoint = Endpoint(self.config.node_id, host, port, self.config.broker_rack)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.logs.run)
                await nursery.start(Server(self, listeners).run)
                task_status.started()
        finally:
            self._close()

    def next_producer_id(self) -> int:
        """A producer id that nobody has; durable blocks make that true over restarts.

        Raises KafkaError UNKNOWN_SERVER_ERROR when all are used up.
        """
        return self._producer_ids.next()

    def note_bug(self) -> None:
        """A request failed by an error of ours."""
        if self.fail_on_bugs:
            raise AssertionError("a request failed by our own fault: see the log")

    def _open(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def _on_record(self, record: Message) -> None:
        raise NotImplementedError
