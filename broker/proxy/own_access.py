"""Users, ACLs, quotas and delegation tokens of a proxy's own, for log-ins that end at the proxy.

The code is the broker's (`Host`), over metadata of the proxy's own (`OwnMetadata`). With users or ACLs of its own
(`has_own_access`) the proxy answers the requests about users, ACLs, quotas and tokens itself (`OwnRequests`); otherwise
upstream does. Log-ins and requests about tokens reach upstream only if log-ins pass through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.handlers.table import HANDLERS, api_name
from oncelog.broker.proxy.fetch_quota import FetchQuota
from oncelog.broker.proxy.mutation_quota import MutationQuotas
from oncelog.broker.proxy.upstream_topics import UpstreamTopics
from oncelog.broker.requests.request import wait_for_response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.broker.handlers.services import AccessServices
    from oncelog.broker.host.host import Host
    from oncelog.broker.proxy.dispatcher import ProxyDispatcher
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Message, Uuid

    AccessHandle = Callable[[AccessServices, Any, RequestContext], Message | Pending[Any] | None]

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
"""The APIs that the proxy answers itself if it has users or ACLs of its own."""
LOGIN_AND_TOKEN_APIS = ("sasl_handshake", "sasl_authenticate", *TOKEN_APIS)
"""The APIs that it answers itself unless log-ins pass through: the log-in upstream is the proxy's, and with a token
from upstream a client would log in as the proxy's user. Where a listener asks for a log-in, that is over before a
request comes to the handlers (`oncelog.broker.security.sasl.login`).
"""


def answer_logins(host: Host, dispatcher: ProxyDispatcher) -> None:
    """Let no client's log-in, and no request for a token, reach upstream through ``dispatcher``."""
    dispatcher.interception.install_own(OwnRequests(host, LOGIN_AND_TOKEN_APIS))


def install_access(host: Host, dispatcher: ProxyDispatcher, topic_name: Callable[[Uuid], str | None]) -> None:
    """Install the ACLs and quotas of ``host`` in ``dispatcher``. ``topic_name`` gives the name for a topic id, None for
    an id that upstream has not shown yet.
    """
    topics = UpstreamTopics(dispatcher.forward)
    interceptors = (
        MutationQuotas(dispatcher.forward_through_own_interceptors, topics, topic_name),
        FetchQuota(host.client_quotas),
    )

    def apply() -> None:
        quotas = host.quotas
        interception = dispatcher.interception
        if (quotas is None) != (interception.quotas is None):
            change = interception.remove if quotas is None else interception.install_own
            for one in interceptors:
                change(one)
        interception.throttle_with(quotas)

    host.on_access_change = apply
    dispatcher.interception.install_own(OwnRequests(host, OWN_APIS))
    if host.authorizer is not None:
        from oncelog.broker.proxy.authorizing import AuthorizingInterceptor

        dispatcher.interception.install_own(
            AuthorizingInterceptor(host, dispatcher.forward_through_own_interceptors, topics, topic_name)
        )
    apply()


class OwnRequests(Interceptor):
    """Answers the requests of ``apis`` by the broker's handlers, over the proxy's own metadata."""

    def __init__(self, host: Host, apis: Sequence[str]) -> None:
        self._host = host
        self.apis = frozenset(map(api_name, apis))
        self._loaded: dict[int, Api] = {}

    async def on_request(self, context: RequestContext) -> Any:
        """See `Interceptor`."""
        key = context.api.row.api_key
        api = self._loaded.get(key)
        if api is None:
            api = self._loaded[key] = Api(HANDLERS[key])
        if api.authorize is not None:
            api.authorize(self._host.authorization, context)
        # Each of these handlers is an AccessHandle: tests/proxy/test_own_handlers.py lets mypy check that.
        handle: AccessHandle = api.handle  # type: ignore[assignment]
        return await wait_for_response(handle(self._host, context.request, context))
