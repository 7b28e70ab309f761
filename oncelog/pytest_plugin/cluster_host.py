"""`ClusterHost`: the operations of a broker that any client can do, on a Kafka cluster that runs elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import outcome
import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.control.errors import UnsupportedError
from oncelog.broker.control.options import TopicOptions
from oncelog.broker.seams.transport import connect
from oncelog.pytest_plugin import cluster_operations

CLIENT_ID = "oncelog-pytest"


class ClusterHost:
    """See `oncelog.broker.embedded.host.Host`. Each operation has a thread, a loop and connections of its own.

    ``topics`` are created by ``start``. `close` deletes them, and those that ``create_topics`` created.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], topics: Mapping[str, TopicOptions]) -> None:
        self._addresses = addresses
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
            self._created = []
            done.wait()

    async def _perform(self, client: ClusterClient, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "start":
            await cluster_operations.create_topics(client, topics=self._topics)
            self._created += self._topics
            return await cluster_operations.info(client)
        function = cluster_operations.OPERATIONS.get(operation)
        if function is None:
            host, port = self._addresses[0]
            raise UnsupportedError(
                f"{operation}: the Kafka cluster at {host}:{port} cannot do that, only a broker of oncelog's"
            )
        result = await function(client, **arguments)
        if operation == "create_topics":
            self._created += arguments["topics"]
        return result
