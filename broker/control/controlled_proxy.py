"""`ControlledProxy`: a proxy that a test starts, stops and kills. It lives in one Trio loop.

A `Proxy` is one run. Its addresses, and the journal, filters and rules before the cluster, outlive it here.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.control import operations
from oncelog.broker.control.cluster.operations import OPERATIONS as OF_CLUSTER
from oncelog.broker.control.errors import UnsupportedError
from oncelog.broker.control.instruments import Extras, Instruments
from oncelog.broker.control.runs import Runs
from oncelog.broker.dispatch.interfaces import RequestPath
from oncelog.broker.faults.fault_rules import FaultRules
from oncelog.broker.faults.rule import REFUSED_BY_PROXY, TargetLimits
from oncelog.broker.faults.seen_sessions import SeenSessions
from oncelog.broker.faults.words import RuleError
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.net.server import BoundListener
from oncelog.broker.proxy.connection import ProxyConnection
from oncelog.broker.proxy.proxy import Proxy
from oncelog.broker.proxy.serve import node_binder, open_proxy_on_sockets
from oncelog.broker.proxy.settings import ProxySettings
from oncelog.broker.proxy.upstream import Upstream
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.clock import SystemClock
from oncelog.broker.seams.transport import PortReservation, connect
from oncelog.wire.errors import KafkaError

CLIENT_ID = "oncelog-proxy"
"""The client id of the proxy's own requests."""

SHARED = (
    *("start", "stop", "kill", "info", "log_lines"),
    *("add_rule", "load_rules", "rules", "wait_fired", "release", "remove_rule", "clear_rules"),
    *("requests", "wait_for", "connected_clients", "failed_logins", "wait_for_failed_login"),
)
"""The operations that are the same for a broker and a proxy."""
_TIME = "a proxy cannot move the time of the cluster behind it"
_DATA = "the data is the cluster's, and a proxy leaves it there"
UNSUPPORTED = {
    **dict.fromkeys(operations.OPERATIONS["operations.clock"], _TIME),
    **dict.fromkeys(("lose_power", "reset", "snapshot"), _DATA),
    "producers": "a proxy does not see what partitions know of their producers",
}
"""Why a proxy cannot do some of the others."""
ONLY_A_BROKER = "only a broker of oncelog can do it: of a cluster, ask Kafka's tools"
"""Why it cannot do the rest."""

log = get_logger(__name__)


class Target(NamedTuple):
    """The proxy as the target of rules, see `oncelog.broker.faults.fault_rules.Target`."""

    dispatcher: RequestPath
    known_topics: Upstream
    fetch_sessions: SeenSessions
    share_sessions: None = None
    """A proxy does not know the partitions of share sessions."""


class ControlledProxy:
    """A proxy with ``settings``. It opens nothing before `start`. `run` must run meanwhile."""

    def __init__(
        self,
        settings: ProxySettings,
        *,
        seed: int,
        requests_kept: int,
        host_name: str,
        extras: Extras,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.random = random.Random(seed)
        self._instruments = Instruments(requests_kept, extras)
        self.journal = self._instruments.journal
        """The requests of clients in all its runs."""
        self.lines = self._instruments.lines
        """The log lines of all its runs."""
        self.turns = trio.Lock()
        """Held while an operation starts or stops the proxy: several may come at the same time."""
        names = [row.bind.listener for row in settings.listeners]
        self.faults = FaultRules(random.Random(seed), TargetLimits(REFUSED_BY_PROXY, names))
        """The rules for what goes wrong between clients and the cluster."""
        self.clock = SystemClock()
        self.runs: Runs[Proxy] = Runs("proxy", host_name, self._on_end)
        self._client: ClusterClient
        """Of the latest run."""
        self._node_ports: dict[tuple[str, int], PortReservation] = {}
        """By the listener's name and the node's id: what clients were told stays so after a restart."""
        self._sessions = SeenSessions()
        self._watches_sessions = False
        self._rules = extras.rules
        for rule in self._rules:
            self.faults.add(rule)
        self.faults.on_change.append(self._watch_sessions)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry its runs until cancelled."""
        try:
            await self.runs.carry(task_status)
        finally:
            for reserved in self._node_ports.values():
                reserved.close()

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Perform an operation by name and return its result. Raises KeyError for an unknown name, UnsupportedError for
        an operation that a proxy cannot perform.
        """
        try:
            if operation in SHARED:
                return await operations.operation(operation)(self, **arguments)
            if operation in OF_CLUSTER:
                return await OF_CLUSTER[operation](self.client, **arguments)
        finally:
            self.journal.changes.note()
        if operation not in operations.MODULES:
            raise KeyError(operation)
        raise UnsupportedError(f"{operation}: {UNSUPPORTED.get(operation, ONLY_A_BROKER)}")

    # -- what there is now

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self.runs.is_running

    @property
    def proxy(self) -> Proxy:
        """The proxy that serves. Raises as `call`."""
        return self.runs.current

    @property
    def client(self) -> ClusterClient:
        """The client for its own requests to the cluster. Raises as `call`."""
        _serving = self.runs.current  # or it raises
        return self._client

    @property
    def connections(self) -> Collection[ProxyConnection]:
        """See `Controlled`."""
        return self.proxy.server.connections if self.is_running else ()

    @property
    def cluster_id(self) -> str:
        """The id of the cluster behind it; empty before the first response that has it."""
        return self.runs.latest_for("knows no cluster").upstream.cluster_id or ""

    @property
    def bootstrap_servers(self) -> str:
        """See `Controlled`."""
        return self.runs.bootstrap_servers

    @property
    def listening(self) -> dict[str, str]:
        """See `Controlled`."""
        return self.runs.listening

    @property
    def node_id(self) -> int:
        """A proxy is no node of the cluster."""
        return -1

    async def prepare_rules(self) -> bool:
        """Ask upstream which topics there are. Returns whether it has told all."""
        if not self.is_running:
            return False
        try:
            self.proxy.upstream.learn_metadata(await self.client.refresh_metadata())
        except (KafkaError, CloseConnection):
            return False
        return True

    # -- its runs

    async def start(self) -> None:
        """Start it at the addresses of the run before. Nothing happens if it runs. Raises BrokerFailedError if it
        cannot start: a port is taken, the cluster cannot be reached, another process has the data directory, ....
        """
        if self.is_running:
            return
        await self.runs.wait_ended()
        await self.runs.start(self._open())
        await self._check_rules()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Proxy]:
        settings = self.settings
        with (
            self._instruments.logging(self.clock),
            self.runs.ports.listen(settings.config, settings.listeners) as listeners,
            ClusterClient(
                settings.upstream, connect, client_id=CLIENT_ID, security=settings.logins.own
            ) as self._client,
            open_proxy_on_sockets(
                settings,
                listeners,
                bind_node=self._bind_node,
                clock=self.clock,
                rng=self.random,
                on_loaded=self._prepare,
            ) as proxy,
        ):
            yield proxy

    async def stop(self) -> None:
        """Stop it; connections are closed. Nothing happens if it does not run."""
        await self.runs.end()

    async def kill(self) -> None:
        """End it as SIGKILL does. What a proxy keeps is on the disk before it is acknowledged, so this is what `stop`
        does.
        """
        await self.stop()

    def _on_end(self) -> None:
        """Called at the end of a run."""
        self.faults.detach()
        self.journal.detach()
        self._sessions.clear()
        self._watches_sessions = False

    def _prepare(self, proxy: Proxy) -> None:
        """Called before the proxy listens."""
        self._instruments.attach(proxy)
        self.faults.attach(Target(proxy.dispatcher, proxy.known_topics, self._sessions))

    def _watch_sessions(self, target: Target, rules: FaultRules) -> None:
        """Watch fetch sessions while rules look at Fetches."""
        states = rules.states
        wanted = bool(states) and (rules.apis is None or "Fetch" in rules.apis)
        if wanted and not self._watches_sessions:
            target.dispatcher.interception.install(self._sessions)
        elif self._watches_sessions and not wanted:
            target.dispatcher.interception.remove(self._sessions)
            self._sessions.clear()
        self._watches_sessions = wanted

    def _bind_node(self, main: BoundListener, node_id: int, port: int) -> BoundListener:
        """Listen for a node, at the port of the run before. Raises ListenError."""
        key = main.name, node_id
        reserved = self._node_ports.get(key)
        if reserved is None and port == 0:
            reserved = self._node_ports[key] = PortReservation(main.listener.address[0], 0)
        return node_binder(self.settings.config)(main, node_id, port if reserved is None else reserved.port)

    async def _check_rules(self) -> None:
        """Warn of rules from the start whose topics do not exist."""
        if not self._rules or not await self.prepare_rules():
            return
        for rule in self._rules:
            try:
                self.faults.check_topics(rule)
            except RuleError as error:
                with self._instruments.logging(self.clock):
                    log.warning("a rule matches nothing yet", rule=rule.text, reason=str(error))
