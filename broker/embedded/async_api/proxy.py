"""`AsyncProxy`: a proxy in this process or a child process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from oncelog.broker.control.acl_options import Acl
from oncelog.broker.control.options import REQUESTS_KEPT
from oncelog.broker.control.proxy_options import checked_proxy_options
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.embedded.async_api.facade import AsyncFacade
from oncelog.broker.embedded.certificates import BrokerCertificate
from oncelog.broker.embedded.own_options import OwnOptions


class AsyncProxy(AsyncFacade):
    """A proxy before a Kafka cluster, in this process, on a thread of its own. A test uses it like `AsyncBroker`:
    faults and waits concern the cluster as clients of the proxy see it.

        async with AsyncProxy(upstream="127.0.0.1:9092") as kafka:
            client = SomeKafkaClient(kafka.bootstrap_servers)
            await kafka.faults.on("EndTxn").nth(2).drop_response()

    ``faults``, ``requests`` and ``wait_for`` are about what passes through the proxy. ``topic``, ``group``,
    ``transactions``, ``produce`` and so on, and the waits for them, ask the cluster. What only a broker can do (its
    clock, ``reset``, ``snapshot``, ``lose_power``, ``producers``) raises UnsupportedError, and a rule with ``crash_at``
    InvalidArgumentError.

    upstream: addresses of some of the cluster's brokers, ``host:port``, separated by commas or in a list.
    upstream_config: TLS and log-in at the cluster, by the keys of Kafka's clients (``security.protocol``,
        ``sasl.jaas.config``, ...): a dictionary, or the path of a client.properties.
    upstream_users: other keys for each user who logs in here, such as ``{"app": {"username": "prod-app",
        "password": "secret"}}``; "*" is for those without a table of their own. Or the path of a TOML file
        with such tables.
    pass_logins: clients log in at the cluster, through the proxy.
    filters: see docs/how-to/proxy.md: an `Interceptor` each, or "module:name" of one. The first is nearest to the
        clients.
    config: Kafka's broker configuration, of the proxy's listeners, log-ins, rights and quotas; other keys are refused.
    data_dir: where to keep the proxy's own users, ACLs, quotas and delegation tokens. Without it, they are kept in
        memory, until the proxy stops.
    port: of the proxy; each of the cluster's nodes has one of the ports after it. 0 takes free ones.
    users, acls, tls, oauth: who may log in at the proxy, and do what, as of `AsyncBroker`.
    seed: for random choices of rules.
    requests_kept: how many requests of each API `requests` can show. With 0 there are none, and what no rule and no
        filter looks at passes unread.
    process: run it in a child process instead of a thread.
    """

    _kind = "proxy"

    def __init__(
        self,
        upstream: str | Iterable[str],
        *,
        upstream_config: Mapping[str, object] | str | os.PathLike[str] | None = None,
        upstream_users: Mapping[str, Mapping[str, str]] | str | os.PathLike[str] | None = None,
        pass_logins: bool = False,
        filters: Iterable[Interceptor | str] = (),
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        users: Mapping[str, str] | None = None,
        acls: Iterable[Acl | Mapping[str, object]] | None = None,
        tls: bool | BrokerCertificate = False,
        oauth: bool = False,
        seed: int | None = None,
        requests_kept: int = REQUESTS_KEPT,
        process: bool = False,
    ) -> None:
        own = OwnOptions.of(
            config=config,
            data_dir=data_dir,
            port=port,
            seed=seed,
            requests_kept=requests_kept,
            users=users,
            acls=acls,
            tls=tls,
            oauth=oauth,
            has_data=False,
        )
        controlled = checked_proxy_options(
            upstream,
            own.options,
            upstream_config=_path_or_keys(upstream_config),
            upstream_users=_path_or_keys(upstream_users),
            pass_logins=pass_logins,
            filters=filters,
        )
        super().__init__(own, controlled, process=process)


def _path_or_keys(given: Any) -> Any:
    return os.fspath(given) if isinstance(given, os.PathLike) else given
