"""`AsyncBroker`: a broker in this process or a child process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from oncelog.broker.control.acl_options import Acl
from oncelog.broker.control.errors import UnsupportedError
from oncelog.broker.control.options import REQUESTS_KEPT, SNAPSHOT_BYTES_MAX
from oncelog.broker.embedded.async_api.client_metrics import AsyncClientMetrics
from oncelog.broker.embedded.async_api.facade import AsyncFacade
from oncelog.broker.embedded.async_api.nodes import AsyncNetwork, AsyncNode, AsyncNodes
from oncelog.broker.embedded.certificates import BrokerCertificate
from oncelog.broker.embedded.own_options import OwnOptions

if TYPE_CHECKING:
    from oncelog.broker.control.nodes.options import ClusterOptions
    from oncelog.broker.control.options import BrokerOptions


class AsyncBroker(AsyncFacade, AsyncClientMetrics):
    """A Kafka broker in this process, on a thread of its own, for tests.

        async with AsyncBroker(topics={"orders": 3}) as kafka:
            client = SomeKafkaClient(kafka.bootstrap_servers)

    It starts with the block, or with `start`, and is gone with the end of the block, or with `close`. One that is
    forgotten without that ends, too, with a ResourceWarning. Arguments that make no sense raise InvalidArgumentError at
    once.

    topics: created at the start: names, or ``{"orders": 3}`` with the number of partitions, or ``{"orders":
        {"partitions": 3, "config": {"cleanup.policy": "compact"}}}``.
    config: Kafka's broker configuration. Defaults of the test kit, not Kafka's: ``group.initial.rebalance.delay.ms`` is
        0; ``offsets.topic.num.partitions``, ``transaction.state.log.num.partitions`` and
        ``share.coordinator.state.topic.num.partitions`` are 1; members of share groups get partitions at once
        (``group.share.heartbeat.interval.ms`` is 50, ``group.share.assignment.interval.ms`` 0).
    data_dir: where to keep the data. Without it, it is kept in memory and ends with the broker.
    port: 0 takes a free one, which stays the broker's until `close`.
    from_snapshot: the path of a file that `snapshot` wrote, or what `snapshot_bytes` returned: the broker starts with
        its data, configuration and clock. ``config`` and ``topics`` add to them.
    snapshot_bytes_max: how many bytes the snapshot may unpack to (512 MB), which it does in memory.
    seed: for random ids and delays; without it, `seed` tells the one that was drawn.
    requests_kept: how many requests of each API `requests` can show. With 0 it keeps none, and a small Produce takes
        the broker a third of the time.
    version: serve what a broker of this release of Kafka serves, such as "3.9"; without it, all that oncelog does.
    users: passwords by user's name, such as ``{"app": "secret"}``: they log in by PLAIN and SCRAM. Without listeners in
        ``config``, the only one is SASL_PLAINTEXT then.
    acls: who may do what: `Acl` each, such as ``Acl("User:app", "Read", topic="orders")``. With them, also with an
        empty list, nobody else may do anything (Kafka's StandardAuthorizer).
    tls: the listener speaks TLS, with certificates of an authority that the broker makes. `client_config` has what a
        client needs, and `certificate` what it may show. The broker's own is "expired" or "of_a_stranger", or for
        another host, "other_host", if that is said: clients refuse it.
    oauth: clients log in by OAUTHBEARER, with tokens that `client_config` has for them, and `token`. With ``users``,
        too, they may do either.
    nodes: how many nodes it has, each with an address and logs of its own, or ``{1: {"broker.rack": "a"}, 2: …}`` with
        keys for one node each. Defaults of the test kit for several: three replicas, two of them in sync, and sessions
        of one second. See docs/how-to/nodes.md.
    process: run it in a child process instead of a thread, for a program that keeps Python's interpreter busy itself.
    """

    _kind = "broker"

    def __init__(
        self,
        topics: Mapping[str, object] | Iterable[str] = (),
        config: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        from_snapshot: str | os.PathLike[str] | bytes | None = None,
        snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX,
        port: int = 0,
        seed: int | None = None,
        requests_kept: int = REQUESTS_KEPT,
        version: str | None = None,
        users: Mapping[str, str] | None = None,
        acls: Iterable[Acl | Mapping[str, object]] | None = None,
        tls: bool | BrokerCertificate = False,
        oauth: bool = False,
        nodes: int | Mapping[int, Mapping[str, object]] = 1,
        process: bool = False,
    ) -> None:
        own = OwnOptions.of(
            topics=topics,
            config=config,
            data_dir=data_dir,
            port=port,
            seed=seed,
            requests_kept=requests_kept,
            version=version,
            users=users,
            acls=acls,
            tls=tls,
            oauth=oauth,
            from_snapshot=_source(from_snapshot),
            snapshot_bytes_max=snapshot_bytes_max,
        )
        super().__init__(own, own.options if nodes == 1 else _several(nodes, own.options), process=process)
        self._nodes = _node_ids(nodes)

    @property
    def nodes(self) -> Mapping[int, AsyncNode]:
        """The nodes by id, from 1 on. Raises UnsupportedError if there is only one."""
        self._check_several()
        return AsyncNodes({node_id: AsyncNode(self, node_id) for node_id in self._nodes})

    @property
    def network(self) -> AsyncNetwork:
        """What is between the nodes. Raises UnsupportedError if there is only one."""
        self._check_several()
        return AsyncNetwork(self)

    async def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        """Make a node the preferred leader of a partition, and its leader; all nodes know it then.

        Raises InvalidArgumentError if it has no replica of the partition, KafkaError (PREFERRED_LEADER_NOT_AVAILABLE)
        if its replica is not in sync, UnsupportedError if there is only one node.
        """
        self._check_several()
        await self._call("move_leader", topic=topic, partition=partition, to=to)

    async def elect_leaders(self, topic: str, partition: int | None = None, *, unclean: bool = False) -> None:
        """Elect the preferred leaders of a partition, or of all of a topic; all nodes know it then.

        unclean: instead, where there is no leader, let any replica lead whose node runs, though it may not have all
            that was acknowledged.

        Raises KafkaError (PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE), UnsupportedError if there is
        only one node.
        """
        self._check_several()
        await self._call("elect_leaders", topic=topic, partition=partition, unclean=unclean)

    def _check_several(self) -> None:
        if len(self._nodes) == 1:
            raise UnsupportedError("there is one node: Broker(nodes=3) has several")


def _several(nodes: int | Mapping[int, Mapping[str, object]], options: BrokerOptions) -> ClusterOptions:
    from oncelog.broker.control.nodes.options import cluster_options

    return cluster_options(nodes, options)


def _node_ids(nodes: int | Mapping[int, Mapping[str, object]]) -> range:
    return range(1, (nodes if isinstance(nodes, int) else len(nodes)) + 1)


def _source(snapshot: str | os.PathLike[str] | bytes | None) -> str | bytes | None:
    """Return the content or the absolute path of a snapshot."""
    if snapshot is None or isinstance(snapshot, bytes):
        return snapshot
    return os.path.abspath(snapshot)
