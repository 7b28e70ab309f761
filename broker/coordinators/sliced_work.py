"""`SlicedWork`: a coordinator's background work. One task does it in slices, so that requests have their turn.

Kafka: the background executor of the group coordinator, and writes to all shards
(``CoordinatorRuntime.scheduleWriteAllOperation``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.background_work import BackgroundWork
from oncelog.broker.scheduling.slices import in_slices
from oncelog.wire.errors import KafkaError

_log = get_logger(__name__)


class SlicedWork:
    """A queue of work on the shards of ``topic``. ``note_internal_error`` is called after work failed with an internal
    error.
    """

    def __init__(
        self, topic: str, background: BackgroundWork, note_internal_error: Callable[[], None]
    ) -> None:
        self._topic = topic
        self._background = background
        self._note_internal_error = note_internal_error
        self._queue: deque[Iterator[object]] = deque()
        self._added = trio.Event()

    def add(self, work: Iterator[object]) -> None:
        """Do ``work`` after all work added before it. Each of its steps should take less than a slice."""
        self._queue.append(work)
        self._added.set()

    async def run(self) -> None:
        """Do the work in the queue, until cancelled."""
        while True:
            self._added = trio.Event()
            while self._queue:
                try:
                    with self._background.running(f"work on {self._topic}"):
                        await in_slices(self._queue.popleft())
                except KafkaError as error:
                    _log.warning("work on shards not finished", topic=self._topic, error=str(error))
                except Exception:
                    _log.exception("work on shards failed with an internal error", topic=self._topic)
                    self._note_internal_error()
            await self._added.wait()
