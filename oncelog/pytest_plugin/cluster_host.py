"""`ClusterHost`: performs operations on a Kafka cluster, as far as a client can."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import outcome
import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.control.cluster import operations, topics
from oncelog.broker.control.errors import UnsupportedError
from oncelog.broker.control.options import TopicOptions
from oncelog.broker.seams.transport import connect

CLIENT_ID = "oncelog-pytest"


_deleted: set[tuple[tuple[tuple[str, int], ...], str]] = set()
"""The topics that this process has created and deleted: the addresses of the cluster, and the name."""


class ClusterHost:
    """See `oncelog.broker.embedded.host.Host`. Each operation has a thread, a loop and connections of its own.

    ``topics`` are created by ``start``. `close` deletes them, and those that ``create_topics`` created.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], topics: Mapping[str, TopicOptions]) -> None:
        self._addresses = tuple(addresses)
        self._topics = topics
        self._created: list[str] = []

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[outcome.Outcome[Any]], None]
    ) -> Callable[[], None]:
        scope = trio.CancelScope()
        tokens: list[trio.lowlevel.TrioToken] = []

        async def main() -> Any:
            tokens.append(trio.lowlevel.current_trio_token())
            with scope, ClusterClient(self._addresses, connect, client_id=CLIENT_ID) as client:
                return await self._perform(client, operation, arguments)

        def work() -> None:
            on_done(outcome.capture(lambda: trio.run(main)))

        def cancel() -> None:
            for token in tokens:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(scope.cancel)

        threading.Thread(target=work, name="oncelog cluster client", daemon=True).start()
        return cancel

    def close(self) -> None:
        if self._created:
            done = threading.Event()
            self.submit("delete_topics", {"names": self._created}, lambda _: done.set())
            _deleted.update((self._addresses, name) for name in self._created)
            self._created = []
            done.wait()

    async def _perform(self, client: ClusterClient, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "start":
            found = await operations.info(client)
            # A client that a test left behind may have asked for a deleted topic, and Kafka created it again.
            again = [name for name in self._topics if (self._addresses, name) in _deleted]
            if again:
                await topics.delete_topics(client, names=again)
            await topics.create_topics(client, topics=self._topics)
            self._created += self._topics
            return found
        function = operations.OPERATIONS.get(operation)
        if function is None or not _takes(function, client, arguments):
            servers = ",".join(f"{host}:{port}" for host, port in self._addresses)
            raise UnsupportedError(
                f"{operation} needs a broker of oncelog, and this is the Kafka cluster at {servers}"
            )
        result = await function(client, **arguments)
        if operation == "create_topics":
            self._created += arguments["topics"]
        elif operation == "create_topic":
            self._created.append(arguments["name"])
        return result


def _takes(function: Callable[..., Any], client: ClusterClient, arguments: Mapping[str, Any]) -> bool:
    """Return whether an operation on a cluster has all these arguments of a broker's."""
    try:
        inspect.signature(function).bind(client, **arguments)
    except TypeError:
        return False
    return True
