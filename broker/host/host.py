"""`Host`: the parts that a node and a proxy have alike. `open_listeners`: opens the listeners of either."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.acl_changes import store_acls
from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.metadata.client_quotas import entity_of_record
from oncelog.broker.net.listen import open_listener
from oncelog.broker.net.server import Server
from oncelog.broker.requests.authorization import Authorization
from oncelog.broker.scheduling.slices import in_slices
from oncelog.broker.security.connection_limits import ConnectionLimits
from oncelog.broker.security.connection_rates import ConnectionRates
from oncelog.broker.security.delegation_tokens import DelegationTokens
from oncelog.broker.security.denied_lines import DeniedLines
from oncelog.broker.security.host_names import HostNames
from oncelog.broker.security.quotas import ClientQuotas
from oncelog.broker.security.sasl.users import Users, store_credentials
from oncelog.wire.stored.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import trio

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.config.listeners import ListenerConfig
    from oncelog.broker.dispatch.interception import Interception
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.net.server import BoundListener, ConnectionT
    from oncelog.broker.scheduling.background_work import BackgroundWork
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.transport import Transport
    from oncelog.broker.security.acls import StandardAuthorizer
    from oncelog.broker.security.failed_authentication import FailedAuthentication
    from oncelog.broker.security.sasl.authenticator import LoginExchange
    from oncelog.wire.schema import Message

log = get_logger(__name__)


class Host:
    """The services that a node and a proxy have in common: users, ACLs, quotas and delegation tokens in ``metadata``,
    and the listeners. Log-ins, the server and a proxy's handlers use them.

    ``users`` may log in, and ``acls`` are created if they are missing, beside those in ``metadata``; in a cluster, the
    controller stores them. `background` counts the tasks that are running: a test that moves broker time waits for
    them. `on_access_change` is called after each change of an ACL or a quota.
    """

    def __init__(
        self,
        config: DynamicBrokerConfig,
        metadata: ClusterMetadata,
        listeners: Sequence[BoundListener],
        *,
        files: FileSystem,
        clock: Clock,
        rng: random.Random,
        users: Users | None,
        acls: Sequence[AclBinding],
        background: BackgroundWork,
    ) -> None:
        """Raises KafkaError for an ACL that cannot be created."""
        self.config = config
        self.metadata = metadata
        self.files = files
        self.clock = clock
        self.random = rng
        self.lines = LineLimiter(clock)
        """For log lines that may repeat with every request."""
        self.background = background
        self.fail_on_internal_errors = False
        """Whether an internal error ends the node or proxy, as tests want it, or only the request."""
        self.internal_errors = 0
        """How many requests and tasks failed with an internal error."""
        self.users = Users({}) if users is None else users
        """Users that may log in beside those of the metadata and of the JAAS texts."""
        if metadata.is_controller:
            store_credentials(metadata, self.users)
            store_acls(metadata, acls)
        image = metadata.image
        self.authorizer: StandardAuthorizer | None = None
        """The authorizer that ``authorizer.class.name`` names, else None. `authorizer_in_force` warns of stored ACLs
        that no authorizer enforces.
        """
        if config.static.authorizer_class_name or image.acls.by_id:
            from oncelog.broker.security.acls import authorizer_in_force

            self.authorizer = authorizer_in_force(config.static, image.acls)
        self.authorization = Authorization(self.authorizer, DeniedLines(clock).note)
        self.delegation_tokens = DelegationTokens(config.static, metadata, clock)
        self.login_observers: list[
            Callable[[BaseConnection, LoginExchange | FailedAuthentication], None]
        ] = []
        """Told of each request of a log-in, which no interceptor sees, and of peers turned away. Must not raise."""
        self.disconnect_observers: list[Callable[[], None]] = []
        """Told of each end of a connection. Must not raise."""
        self.listeners = list(listeners)
        for listener in listeners:
            if listener.security is not None:
                listener.security.attach(self)
        self.host_names = HostNames()
        self.client_quotas = ClientQuotas(config.current, image)
        limits = ConnectionLimits(config, [listener.name for listener in listeners])
        self._connection_rates = ConnectionRates(config, limits, image, self.host_names.address)
        self.on_access_change: Callable[[], None] = lambda: None
        metadata.subscribe(self._on_record)

    @property
    def quotas(self) -> ClientQuotas | None:
        """The `client_quotas`; None while nobody has one: asking them costs time."""
        return self.client_quotas if self.metadata.image.client_quotas.clients > 0 else None

    def note_internal_error(self) -> None:
        """Count a request or task that failed with an internal error; raise AssertionError if
        `fail_on_internal_errors`.
        """
        self.internal_errors += 1
        if self.fail_on_internal_errors:
            raise AssertionError("a request or a task failed with an internal error: see the log")

    def new_server(
        self,
        interception: Interception,
        new_connection: Callable[[Server[ConnectionT], Transport, BoundListener], ConnectionT],
    ) -> Server[ConnectionT]:
        """Return the server of the listeners, which does not run yet."""
        return Server(self, interception, list(self.listeners), self._connection_rates, new_connection)

    def start_tasks(self, nursery: trio.Nursery) -> None:
        """Begin the background work."""
        nursery.start_soon(self._look_up_hosts)
        if self.delegation_tokens.is_enabled and self.metadata.is_controller:
            nursery.start_soon(self._remove_expired_tokens)

    async def _look_up_hosts(self) -> None:
        """Look up the hosts that the stored quotas name."""
        if await self.host_names.resolve_quotas(self.metadata.image.client_quotas):
            self._connection_rates.on_change()

    async def _remove_expired_tokens(self) -> None:
        """Remove expired delegation tokens from time to time."""
        tokens = self.delegation_tokens
        while True:
            await self.clock.pause(tokens.check_interval_ms / 1000)
            with self.background.running("search for expired delegation tokens"):
                removed = await in_slices(tokens.remove_expired())
            if removed:
                log.info("expired delegation tokens removed", tokens=removed)

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        """Apply a change of the metadata: it holds for the next request."""
        if isinstance(record, ClientQuotaRecord):
            self.client_quotas.on_change(entity_of_record(record))
            self._connection_rates.on_change()
        elif not isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
            return
        elif self.authorizer is not None:
            if isinstance(record, AccessControlEntryRecord):
                self.authorizer.add(record.id, AclBinding.of(record))
            else:
                self.authorizer.remove(record.id)
        self.on_access_change()


@contextmanager
def open_listeners(
    listeners: Iterable[ListenerConfig], config: BrokerConfig
) -> Iterator[list[BoundListener]]:
    """Listen on all of them; close them in the end. Raises ListenError for an address that cannot be used, ConfigError
    for unusable security settings.
    """
    with ExitStack() as opened:
        bound = []
        for listener in listeners:
            bound.append(open_listener(listener, config))
            opened.callback(bound[-1].listener.close)
        yield bound
