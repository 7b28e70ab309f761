"""`Duties`: what a coordinator does beside requests: deadlines, and work that takes more than a moment.

Two tasks, which sleep until there is something to do. Source: ``CoordinatorTimer``, ``CoordinatorRuntime``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from oncelog.broker.logs import get_logger
from oncelog.broker.slices import Slices, in_slices
from oncelog.coordinator.deadlines import Deadlines
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from oncelog.broker.node import Node

RETRY_BACKOFF_MS = 500
"""Milliseconds after which a deadline whose records could not be written is tried again (``CoordinatorTimer``)."""

_log = get_logger(__name__)


class Duties:
    """The deadlines of the coordinator whose state is in ``topic``, and its work beside requests."""

    def __init__(self, node: Node, topic: str) -> None:
        self.node = node
        self.topic = topic
        self.deadlines = Deadlines(node.clock.monotonic, self.wake)
        self._wake_event = trio.Event()
        self._chore_event = trio.Event()
        self._chores: deque[Iterator[object]] = deque()

    async def run_duties(self) -> None:
        """Do what comes due and what there is to do, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            nursery.start_soon(self._keep_chores)

    def before_deadlines(self) -> None:
        """Called in the task whenever it wakes: what cannot be done where it became known."""

    def wake(self) -> None:
        """Let the task of the deadlines look around."""
        self._wake_event.set()

    async def _keep_time(self) -> None:
        while True:
            self.before_deadlines()
            self._wake_event = trio.Event()
            with self.node.clock.move_on_at(self.deadlines.next_at()):
                await self._wake_event.wait()
            slices = Slices()
            while (due := self.deadlines.take_due()) is not None:
                self._act(*due)
                if slices.is_over():
                    await slices.pause()

    def _act(self, key: Hashable, action: Callable[[], None]) -> None:
        """What is due; once more some time later where its shard's log could not be written (as Kafka's timer does)."""
        try:
            action()
        except KafkaError as error:
            about = {"topic": self.topic, "deadline": key}
            self.node.lines.write(_log.warning, "could not be done in time", about, error=error)
            if key not in self.deadlines:
                self.deadlines.set(key, RETRY_BACKOFF_MS, action)
        except Exception:
            _log.exception("a deadline failed by our own fault", topic=self.topic, deadline=key)
            self.node.note_bug()

    def do_in_slices(self, work: Iterator[object]) -> None:
        """Do the work beside requests, after that which was given before. Each step should take less than a slice."""
        self._chores.append(work)
        self._chore_event.set()

    async def _keep_chores(self) -> None:
        while True:
            self._chore_event = trio.Event()
            while self._chores:
                try:
                    await in_slices(self._chores.popleft())
                except KafkaError as error:
                    _log.warning("work on shards not finished", topic=self.topic, error=str(error))
                except Exception:
                    _log.exception("work on shards failed by our own fault", topic=self.topic)
                    self.node.note_bug()
            await self._chore_event.wait()
