"""`Served`: the common interface of a `Node` and a `Proxy`, for all that watch or run either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from oncelog.broker.dispatch.interfaces import KnownTopic, KnownTopics, RequestPath
    from oncelog.broker.host.host import Host


class Runnable(Protocol):
    """A node, a proxy, or a controller."""

    @property
    def host(self) -> Host:
        """The parts that all have alike."""

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled."""


class Served(Runnable, Protocol):
    """A node, or a proxy."""

    @property
    def dispatcher(self) -> RequestPath:
        """Where interceptors are installed."""

    @property
    def known_topics(self) -> KnownTopics:
        """The topics that there are."""

    def watch_metadata(self, on_change: Callable[[KnownTopic | None], None]) -> None:
        """Call ``on_change`` with each change of the metadata: with a topic that was deleted, otherwise with None."""
