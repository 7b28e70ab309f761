"""`ClusterCarrier`: performs operations on a Kafka cluster, as far as a client can."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import outcome
import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.opening import PERHAPS_TLS
from oncelog.broker.control.cluster import operations, topics
from oncelog.broker.control.cluster.groups import delete_groups, listed_groups
from oncelog.broker.control.errors import BrokerFailedError, UnsupportedError
from oncelog.broker.control.options import TopicOptions
from oncelog.broker.control.types import BrokerInfo
from oncelog.broker.seams.address import address_text
from oncelog.broker.seams.machine_time import MachineClock
from oncelog.broker.seams.transport import connect
from oncelog.pytest_plugin import used_groups
from oncelog.pytest_plugin.used_groups import ClusterAddresses
from oncelog.pytest_plugin.users_words import needs_a_broker
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.client.security.client_security import ClientSecurity

CLIENT_ID = "oncelog-pytest"
CLEAN_UP, DELETE_LEFT = "clean up", "delete left groups"
"""The operations of `close` and of `delete_left_groups`, beside those of `operations`."""
WANTS_TLS = "(perhaps it wants TLS: security.protocol=SSL in --kafka-command-config)"
WANTS_LOGIN = (
    "asks for a log-in: --kafka-command-config=FILE says as whom, by the keys of Kafka's clients (security.protocol, "
    "sasl.mechanism, sasl.jaas.config)"
)

_deleted: set[tuple[ClusterAddresses, str]] = set()
"""The topics that this process has created and deleted: the addresses of the cluster, and the name."""


_carriers: dict[ClusterAddresses, ClusterCarrier] = {}
"""The last one of each cluster that has left groups behind."""


def delete_left_groups() -> list[str]:
    """Delete the groups that tests have left, if their members are gone by now. Return the errors about the others."""
    ended = [carrier.wait_for(DELETE_LEFT) for carrier in _carriers.values()]
    return [str(one.error) for one in ended if isinstance(one, outcome.Error)]


class ClusterCarrier:
    """See `oncelog.broker.embedded.carrier.Carrier`. Each operation has a thread, a loop and connections of its own.

    ``topics`` are created by ``start``. `close` deletes them, those that ``create_topics`` created, and the groups that
    ``test`` has used.
    """

    def __init__(
        self,
        addresses: ClusterAddresses,
        topics: Mapping[str, TopicOptions],
        security: ClientSecurity | None = None,
        test: str = "",
    ) -> None:
        self._addresses = addresses
        self._topics = topics
        self._security = security
        self._test = test
        self._created: list[str] = []
        self._groups_before: frozenset[str] | None = None
        """The groups that there were at the start; None before it."""
        self._named_groups: set[str] = set()

    @property
    def servers(self) -> str:
        """The addresses, as the user gives them."""
        return ",".join(address_text(host, port) for host, port in self._addresses)

    def submit(
        self, operation: str, arguments: Mapping[str, Any], on_done: Callable[[outcome.Outcome[Any]], None]
    ) -> Callable[[], None]:
        scope = trio.CancelScope()
        tokens: list[trio.lowlevel.TrioToken] = []

        async def main() -> Any:
            tokens.append(trio.lowlevel.current_trio_token())
            client = ClusterClient(self._addresses, connect, client_id=CLIENT_ID, security=self._security)
            with scope, client:
                return await self._perform(client, operation, arguments)

        def work() -> None:
            on_done(outcome.capture(lambda: trio.run(main, clock=MachineClock())))

        def cancel() -> None:
            for token in tokens:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(scope.cancel)

        threading.Thread(target=work, name="oncelog cluster client", daemon=True).start()
        return cancel

    def close(self) -> None:
        if self._groups_before is None:
            return
        ended = self.wait_for(CLEAN_UP)
        self._groups_before = None
        if isinstance(ended, outcome.Error):
            warnings.warn(
                f"the cluster at {self.servers} keeps topics or groups of the test: {ended.error}",
                stacklevel=2,
            )

    def wait_for(self, operation: str) -> outcome.Outcome[Any]:
        """Perform an operation without arguments; the calling thread waits."""
        done = threading.Event()
        outcomes: list[outcome.Outcome[Any]] = []

        def on_done(one: outcome.Outcome[Any]) -> None:
            outcomes.append(one)
            done.set()

        self.submit(operation, {}, on_done)
        done.wait()
        return outcomes[0]

    async def _perform(self, client: ClusterClient, operation: str, arguments: Mapping[str, Any]) -> Any:
        if operation == "start":
            return await self._start(client)
        if operation == CLEAN_UP:
            return await self._clean_up(client)
        if operation == DELETE_LEFT:
            return await used_groups.delete_left(client, self._addresses)
        function = operations.OPERATIONS.get(operation)
        if function is None or not _takes(function, client, arguments):
            raise UnsupportedError(
                f"{needs_a_broker(operation)}, and this is the Kafka cluster at {self.servers}"
            )
        if "group_id" in arguments:
            self._named_groups.add(arguments["group_id"])
        result = await function(client, **arguments)
        if operation == "create_topics":
            self._created += arguments["topics"]
        elif operation == "create_topic":
            self._created.append(arguments["name"])
        return result

    async def _start(self, client: ClusterClient) -> BrokerInfo:
        found = await self._reached(client)
        await used_groups.delete_left(client, self._addresses)
        before = frozenset(await listed_groups(client))
        # A client that a test left behind may have asked for a deleted topic, and Kafka created it again.
        again = [name for name in self._topics if (self._addresses, name) in _deleted]
        if again:
            await topics.delete_topics(client, names=again)
        await topics.create_topics(client, topics=self._topics)
        self._created += self._topics
        self._groups_before = before
        return found

    async def _reached(self, client: ClusterClient) -> BrokerInfo:
        """Return what identifies the cluster. Raises BrokerFailedError, which says what the user can do."""
        try:
            await client.connection()
        except KafkaError as error:
            text = error.message if error.code is ErrorCode.NETWORK_EXCEPTION else None
            raise BrokerFailedError((text or str(error)).replace(PERHAPS_TLS, WANTS_TLS)) from error
        try:
            return await operations.info(client)
        except BrokerFailedError as error:
            cause = error.__cause__
            has_login = self._security is not None and self._security.mechanism is not None
            # It has told its versions, and so speaks Kafka's protocol.
            if isinstance(cause, KafkaError) and cause.code is ErrorCode.NETWORK_EXCEPTION and not has_login:
                raise BrokerFailedError(f"the cluster at {self.servers} {WANTS_LOGIN}") from error
            raise

    async def _clean_up(self, client: ClusterClient) -> None:
        created, self._created = self._created, []
        try:
            groups = await used_groups.used_groups(
                client, self._groups_before or frozenset(), frozenset(created), self._named_groups
            )
            for group_id in await delete_groups(client, groups):
                used_groups.left.setdefault(self._addresses, {})[group_id] = self._test
                _carriers[self._addresses] = self
        finally:
            if created:
                _deleted.update((self._addresses, name) for name in created)
                await topics.delete_topics(client, names=created)


def _takes(function: Callable[..., Any], client: ClusterClient, arguments: Mapping[str, Any]) -> bool:
    """Return whether an operation on a cluster has all these arguments of a broker's."""
    try:
        inspect.signature(function).bind(client, **arguments)
    except TypeError:
        return False
    return True
