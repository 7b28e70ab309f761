"""`LoginServices`: what the log-ins of a listener need of a node, or of a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.net.base_connection import BaseConnection
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.security.delegation_tokens import DelegationTokens
    from oncelog.broker.security.failed_authentication import FailedAuthentication
    from oncelog.broker.security.sasl.authenticator import LoginExchange
    from oncelog.broker.security.sasl.users import Users


class LoginServices(Protocol):
    """See `Host`, which has more."""

    @property
    def config(self) -> DynamicBrokerConfig: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def metadata(self) -> ClusterMetadata: ...

    @property
    def delegation_tokens(self) -> DelegationTokens: ...

    @property
    def users(self) -> Users: ...

    @property
    def login_observers(
        self,
    ) -> list[Callable[[BaseConnection, LoginExchange | FailedAuthentication], None]]: ...
