"""`Access`: users, ACLs, quotas and delegation tokens of a proxy's own, for log-ins that end at the proxy.

The code is the broker's, over metadata of the proxy's own (`OwnMetadata`). While log-ins end at the proxy, it answers
the requests about users, ACLs, quotas and tokens itself (`OwnRequests`); otherwise upstream does. Log-ins and requests
about tokens it answers itself in any case, unless log-ins pass through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.policies import Interceptor
from oncelog.broker.handlers.table import HANDLERS, api_name
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.acl_changes import store_acls
from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.proxy.fetch_quota import FetchQuota
from oncelog.broker.proxy.mutation_quota import MutationQuotas
from oncelog.broker.proxy.upstream_topics import UpstreamTopics
from oncelog.broker.requests.authorization import Authorization
from oncelog.broker.requests.request import finished
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
    from collections.abc import Callable, Sequence

    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.metadata.store import MetadataStore
    from oncelog.broker.net.peer import Peer
    from oncelog.broker.proxy.dispatcher import ProxyDispatcher
    from oncelog.broker.proxy.own_metadata import OwnMetadata
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.security.acls import StandardAuthorizer
    from oncelog.broker.security.failed_authentication import FailedAuthentication
    from oncelog.broker.security.sasl.authenticator import LoginExchange
    from oncelog.wire.schema import Message, Uuid

TOKEN_APIS = (
    *("create_delegation_token", "renew_delegation_token"),
    *("expire_delegation_token", "describe_delegation_token"),
)
OWN_APIS = (
    *("describe_acls", "create_acls", "delete_acls"),
    *TOKEN_APIS,
    *("describe_client_quotas", "alter_client_quotas"),
    *("describe_user_scram_credentials", "alter_user_scram_credentials"),
)
"""The APIs that the proxy answers itself while log-ins end at it."""
LOGIN_APIS = ("sasl_handshake", "sasl_authenticate", *TOKEN_APIS)
"""The APIs that it answers itself unless log-ins pass through: the log-in upstream is the proxy's, and a token that
upstream makes is a log-in as the proxy's user. Where a listener asks for a log-in, that is over before a request comes
to the handlers (`oncelog.broker.security.sasl.login`).
"""

log = get_logger(__name__)


class AccessServices(NamedTuple):
    """The parts of a proxy that log-ins, and the handlers of requests about access, use; see `Services`."""

    config: DynamicBrokerConfig
    authorization: Authorization
    metadata: MetadataStore
    host_names: HostNames
    files: FileSystem
    clock: Clock
    lines: LineLimiter
    random: random.Random
    delegation_tokens: DelegationTokens
    users: Users
    login_observers: list[Callable[[Peer, LoginExchange | FailedAuthentication], None]]
    note_bug: Callable[[], None]


class Access:
    """``config``, ``files``, ``clock`` and so on are the proxy's. ``users`` and ``acls`` are there at each start,
    beside what ``own`` has. `on_change` is called after each change of an ACL or a quota.
    """

    def __init__(
        self,
        own: OwnMetadata,
        config: DynamicBrokerConfig,
        files: FileSystem,
        clock: Clock,
        lines: LineLimiter,
        rng: random.Random,
        users: Users,
        acls: Sequence[AclBinding],
        note_bug: Callable[[], None],
    ) -> None:
        """Raises ConfigError for an ACL that cannot be."""
        self.metadata = own.store
        store_credentials(self.metadata, users)
        store_acls(self.metadata, acls)
        self.authorizer: StandardAuthorizer | None = None
        if config.static.authorizer_class_name or self.metadata.image.acls.by_id:
            from oncelog.broker.security.acls import authorizer_in_force

            self.authorizer = authorizer_in_force(config.static, self.metadata.image.acls)
        self.quotas = ClientQuotas(config.current, self.metadata.image)
        self.on_change: Callable[[], None] = lambda: None
        self.on_quota: Callable[[], None] = lambda: None
        """Called with each change of a quota, of clients or addresses, before `on_change`."""
        self.services = AccessServices(
            config=config,
            authorization=Authorization(self.authorizer, DeniedLines(clock).note),
            metadata=self.metadata,
            host_names=HostNames(files),
            files=files,
            clock=clock,
            lines=lines,
            random=rng,
            delegation_tokens=DelegationTokens(config.static, self.metadata, clock),
            users=users,
            login_observers=[],
            note_bug=note_bug,
        )
        self.metadata.subscribe(self._on_record)

    def answer_logins(self, dispatcher: ProxyDispatcher) -> None:
        """Let no client's log-in, and no request for a token, reach upstream through ``dispatcher``."""
        dispatcher.install_own(OwnRequests(self.services, LOGIN_APIS))

    def install(self, dispatcher: ProxyDispatcher, topic_name: Callable[[Uuid], str | None]) -> None:
        """Install ACLs and quotas in ``dispatcher``. ``topic_name`` gives the name for a topic id, None for an id that
        upstream has not shown yet.
        """
        topics = UpstreamTopics(dispatcher.forward)
        quotas = (MutationQuotas(dispatcher.pass_on, topics, topic_name), FetchQuota(self.quotas))

        def apply() -> None:
            if self.has_quotas != dispatcher.has_quotas:
                for one in quotas:
                    (dispatcher.install_own if self.has_quotas else dispatcher.remove)(one)
            dispatcher.throttle_with(self.quotas if self.has_quotas else None)

        self.on_change = apply
        dispatcher.install_own(OwnRequests(self.services, OWN_APIS))
        if self.authorizer is not None:
            from oncelog.broker.proxy.authorizing import AuthorizingInterceptor

            authorizing = AuthorizingInterceptor(self.services, dispatcher.pass_on, topics, topic_name)
            dispatcher.install_own(authorizing)
        apply()

    @property
    def has_quotas(self) -> bool:
        """Whether any client has a quota."""
        return self.metadata.image.client_quotas.clients > 0

    async def remove_expired_tokens(self) -> None:
        """Remove expired delegation tokens from time to time, until cancelled."""
        tokens = self.services.delegation_tokens
        while True:
            await self.services.clock.pause(tokens.check_interval_ms / 1000)
            tokens.remove_expired()

    def _on_record(self, record: Message, topic: Topic | None) -> None:
        if isinstance(record, AccessControlEntryRecord):
            if self.authorizer is not None:
                self.authorizer.add(record.id, AclBinding.of(record))
        elif isinstance(record, RemoveAccessControlEntryRecord):
            if self.authorizer is not None:
                self.authorizer.remove(record.id)
        elif isinstance(record, ClientQuotaRecord):
            self.quotas.on_change()
            self.on_quota()
        else:
            return
        self.on_change()


class OwnRequests(Interceptor):
    """Answers the requests of ``apis`` by the broker's handlers, over the proxy's own metadata."""

    def __init__(self, services: AccessServices, apis: Sequence[str]) -> None:
        self._services = services
        self.apis = frozenset(map(api_name, apis))
        self._loaded: dict[int, Api] = {}

    async def on_request(self, context: RequestContext) -> Any:
        """See `Interceptor`."""
        key = context.api.handler.api_key
        api = self._loaded.get(key)
        if api is None:
            api = self._loaded[key] = Api(HANDLERS[key])
        if api.authorize is not None:
            api.authorize(self._services.authorization, context)
        services: Any = self._services
        return await finished(api.handle(services, context.request, context))
