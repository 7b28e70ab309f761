"""`Served`: the common interface of a `Node` and a `Proxy`, for all that watch or run either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from oncelog.broker.dispatch.interfaces import KnownTopic, KnownTopics, RequestPath
    from oncelog.broker.host.host import Host


class Served(Protocol):
    """A node, or a proxy."""

    @property
    def host(self) -> Host:
        """The parts that both have alike."""

    @property
    def dispatcher(self) -> RequestPath:
        """Where interceptors are installed."""

    @property
    def known_topics(self) -> KnownTopics:
        """The topics that there are."""

    def watch_metadata(self, on_change: Callable[[KnownTopic | None], None]) -> None:
        """Call ``on_change`` with each change of the metadata: with a topic that was deleted, otherwise with None."""

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled."""
