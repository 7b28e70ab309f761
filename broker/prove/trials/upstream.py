"""`Upstream`: a Kafka cluster on which programs are proved; `ClusterBench`: it serves one trial, behind a proxy of the
trial's own.

What a node of oncelog knows at once, a cluster has to be asked for. So the state is that of the last look, and a trial
looks when the program is quiet; writes are counted as the cluster acknowledges them. Nothing can be hurried: sessions
and transactions time out in real time. The topics of the plan, what the program makes beside them and its groups are
deleted after each trial. What exists before is not touched: a request that would change it is not passed on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.routes import TRANSACTION, CoordinatorOf
from oncelog.broker.control.cluster import topics
from oncelog.broker.control.cluster.groups import (
    delete_groups,
    described_transaction,
    group,
    listed_groups,
)
from oncelog.broker.control.cluster.share_groups import SHARE, share_group
from oncelog.broker.control.controlled_proxy import ControlledProxy
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError
from oncelog.broker.control.instruments import Extras
from oncelog.broker.control.options import checked_options
from oncelog.broker.control.proxy_options import checked_proxy_options
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.handlers.table import TOPIC
from oncelog.broker.prove.disturbances import NODE_KINDS, WRITES
from oncelog.broker.prove.plan import new_record
from oncelog.broker.prove.trials.bench import address_at
from oncelog.broker.prove.trials.program import listener_config
from oncelog.broker.prove.trials.seed import REQUESTS_KEPT
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import connect
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oncelog.broker.control.journal import Observer
    from oncelog.broker.control.share_types import ShareMember
    from oncelog.broker.control.types import Member, TransactionInfo
    from oncelog.broker.host.served import Served
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.bench import GroupMember
    from oncelog.broker.prove.trials.security import Security
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.messages.list_groups import ListedGroup
    from oncelog.wire.schema import Uuid

CLIENT_ID: Final = "oncelog-prove"
LEFT_OUT: Final = ("broker dies", "time out", *NODE_KINDS)
"""The kinds of disturbances that a proxy cannot take: the brokers, and their time, are the cluster's."""
LOOK_S: Final = 0.1
"""How often the cluster is asked while the program is quiet, at most."""
POLL_S: Final = 0.2
"""How often the cluster is asked while a trial waits for it."""
LOCKS_S: Final = 4.0
"""How long a trial waits each time until it asks again whether the locks of records have ended."""
OPEN: Final = frozenset(("Ongoing", "PrepareCommit", "PrepareAbort"))
LEAVES: Final = -1
"""The epoch of a member that leaves."""
WRITES_SEEN: Final = WRITES | {"JoinGroup", "SyncGroup", "LeaveGroup"}
"""The APIs whose acknowledged requests count as writes, beside heartbeats that change a member's epoch."""


class Upstream:
    """The cluster at the plan's ``upstream``; ``command_config`` says how to log in there, by the keys of Kafka's
    clients, or in a file of them. It is a `Ground`. Raises InvalidArgumentError.
    """

    left_out = LEFT_OUT

    def __init__(
        self, plan: ProofPlan, security: Security, command_config: Mapping[str, object] | str | None
    ) -> None:
        assert plan.upstream is not None
        own = checked_options(
            config=listener_config(plan.instances + 1, security.protocol),
            seed=plan.seed,
            requests_kept=REQUESTS_KEPT,
            users=security.users,
            tls=security.tls,
        )
        self.name = plan.upstream
        self.variables = security.variables
        self.output_ends: Mapping[str, Mapping[int, int]] = {topic: {} for topic in plan.outputs}
        self.settings = checked_proxy_options(
            plan.upstream,
            own,
            upstream_config=command_config,
            upstream_users=None,
            pass_logins=False,
            filters=(),
        ).settings()

    def client(self) -> ClusterClient:
        """Return a client of the cluster."""
        security = self.settings.logins.own
        return ClusterClient(self.settings.upstream, connect, client_id=CLIENT_ID, security=security)

    async def check(self, plan: ProofPlan) -> None:
        """Raises InvalidArgumentError if the cluster cannot be used, or a topic of the plan exists there."""
        with self.client() as client:
            try:
                there = await topics.topics(client)
            except KafkaError as error:
                raise InvalidArgumentError(f"the cluster at {self.name} cannot be used: {error}") from None
            self.check_topics(plan, there)

    def check_topics(self, plan: ProofPlan, there: Iterable[str]) -> None:
        """Raises InvalidArgumentError if a topic of the plan is among those that are there."""
        for topic in plan.topics:
            if topic in there:
                raise InvalidArgumentError(self.exists("topic", topic))

    def exists(self, what: str, name: str) -> str:
        """Return why a topic or a group is refused."""
        return (
            f"{what} {name} exists in the cluster at {self.name}: a proof makes its topics and groups and deletes "
            "them, and touches no others"
        )

    def bench(self, plan: ProofPlan, observer: Observer) -> ClusterBench:
        """See `Ground`."""
        return ClusterBench(self, plan, observer)


class ClusterBench:
    """See the module, and `oncelog.broker.prove.trials.bench.Bench`."""

    nodes = None

    def __init__(self, upstream: Upstream, plan: ProofPlan, observer: Observer) -> None:
        self.controlled = ControlledProxy(
            upstream.settings,
            seed=plan.seed,
            requests_kept=REQUESTS_KEPT,
            host_name="127.0.0.1",
            extras=Extras(observer=observer),
        )
        self._upstream = upstream
        self._plan = plan
        self._client = upstream.client()
        self._seen = SeenRequests(upstream)
        self._looked_at = 0.0
        self._made = False
        """Whether the plan's topics are the trial's: it may have made some of them."""

    def state(self, source: Served) -> SeenRequests:
        self._seen.known_topics = source.known_topics
        source.dispatcher.interception.install(self._seen)
        return self._seen

    async def prepare(self) -> None:
        seen, plan = self._seen, self._plan
        seen.topics_before = frozenset(await topics.topics(self._client, internal=True))
        groups = set(await listed_groups(self._client))
        seen.groups_before = frozenset(groups - {""})  # programs without a group name the empty one
        self._upstream.check_topics(plan, seen.topics_before)
        self._made = True
        await topics.create_topics(self._client, topics=plan.topics)
        for topic, rows in plan.inputs.items():
            await topics.produce(
                self._client, topic=topic, records=[new_record(row)._asdict() for row in rows]
            )
        await self._ask()

    @property
    def is_whole(self) -> bool:
        return self.controlled.is_running

    @property
    def is_settled(self) -> bool:
        return self.is_whole

    def address(self, listener: str) -> str:
        return address_at(self.controlled.runs.listeners, listener)

    async def look(self, last_activity: float) -> None:
        if self._seen.refusal is not None:
            raise InvalidArgumentError(self._seen.refusal)
        now = real_time.monotonic()
        is_fresh = self._looked_at > last_activity and now - self._looked_at < LOOK_S
        if now - last_activity > self._plan.quiet_s / 2 and not is_fresh:
            self._looked_at = now
            await self._ask()

    async def _ask(self) -> None:
        for topic in self._plan.inputs:
            self._seen.input_ends[topic] = {
                number: await topics.offset(self._client, topic, number, topics.LATEST, 1)
                for number in await topics.partitions_of(self._client, topic)
            }
        for transactional_id in list(self._seen.transactions):
            # There is none before its first InitProducerId has come through.
            with suppress(KafkaError):
                found = await described_transaction(self._client, transactional_id)
                self._seen.transactions[transactional_id] = found

    async def groups(self) -> list[str]:
        return [one for one, row in (await self._groups()).items() if row.group_type.lower() != SHARE]

    async def share_groups(self) -> list[str]:
        return [one for one, row in (await self._groups()).items() if row.group_type.lower() == SHARE]

    async def _groups(self) -> dict[str, ListedGroup]:
        """Return the groups that the program has used, as the cluster lists them."""
        listed = await listed_groups(self._client)
        return {one: listed[one] for one in self._seen.groups if one in listed}

    async def expire_members(self, members: Sequence[GroupMember]) -> None:
        """Wait until their sessions are over."""
        waiting = set(members)
        with real_time.move_on_after(self._plan.timeout_s):
            while waiting:
                there = {
                    (group_id, member.member_id)
                    for group_id in {one for one, _ in waiting}
                    for member in await self._members(group_id)
                }
                waiting &= there
                if waiting:
                    await real_time.sleep(POLL_S)

    async def _members(self, group_id: str) -> Sequence[Member | ShareMember]:
        row = (await listed_groups(self._client)).get(group_id)
        if row is None:
            return ()
        view = share_group if row.group_type.lower() == SHARE else group
        with suppress(NotFoundError, KafkaError):
            return (await view(self._client, group_id=group_id)).members
        return ()

    async def expire_transactions(self, transactional_ids: Sequence[str]) -> Sequence[str]:
        now_ms = real_time.now_ms()
        found = [self._seen.transactions.get(one) for one in transactional_ids]
        return [
            one.transactional_id
            for one in found
            if one is not None and one.start_ms is not None and now_ms - one.start_ms >= one.timeout_ms
        ]

    async def end_locks(self) -> None:
        await real_time.sleep(LOCKS_S)

    # -- the end

    async def clean_up(self) -> None:
        with trio.CancelScope(shield=True), self._client:
            try:
                await self._abort_transactions()
                await self._delete_groups()
            finally:
                await self._delete_topics()

    async def _abort_transactions(self) -> None:
        """Abort what the dead have left open, as the next start of its producer would, before its topics are gone."""
        for transactional_id in self._seen.transactions:
            with suppress(KafkaError):
                found = await described_transaction(self._client, transactional_id)
                if found.state in OPEN:
                    request = InitProducerIdRequest(transactional_id, found.timeout_ms)
                    route = CoordinatorOf(transactional_id, TRANSACTION)
                    await self._client.call(request, route, retry=topics.RETRY)

    async def _delete_groups(self) -> None:
        """Delete the program's groups, whose members are dead. Raises KafkaError for one that has living members."""
        ends = real_time.monotonic() + self._plan.timeout_s
        left = sorted(self._seen.groups)
        while left:
            for group_id in left:
                await self._remove_members(group_id)
            left = await delete_groups(self._client, left)
            if left and real_time.monotonic() > ends:
                raise KafkaError(
                    ErrorCode.NON_EMPTY_GROUP,
                    f"the cluster at {self._upstream.name} keeps group {', '.join(left)}, which has members",
                )
            if left:
                await real_time.sleep(POLL_S)

    async def _remove_members(self, group_id: str) -> None:
        """Let the members of a group leave, as its tools do: their sessions would be over some time later."""
        row = (await listed_groups(self._client)).get(group_id)
        members = await self._members(group_id)
        if row is None or not members:
            return
        route = CoordinatorOf(group_id)
        match row.group_type.lower():
            case "classic":
                identities = [
                    MemberIdentity(one.member_id, getattr(one, "instance_id", None)) for one in members
                ]
                await self._client.call(
                    LeaveGroupRequest(group_id, "", identities), route, retry=topics.RETRY
                )
            case "consumer":
                for one in members:
                    instance_id = getattr(one, "instance_id", None)
                    beat = ConsumerGroupHeartbeatRequest(group_id, one.member_id, LEAVES, instance_id)
                    await self._client.call(beat, route, retry=topics.RETRY)
            case _:
                for one in members:
                    end = ShareGroupHeartbeatRequest(group_id, one.member_id, LEAVES)
                    await self._client.call(end, route, retry=topics.RETRY)

    async def _delete_topics(self) -> None:
        """Delete the plan's topics, and what the program has made beside them."""
        if not self._made:
            return
        journal = self.controlled.journal
        named = {name for entry in journal.entries() for name in journal.facts(entry)[TOPIC]}
        there = set(await topics.topics(self._client)) - self._seen.topics_before
        await topics.delete_topics(self._client, names=sorted(there & (named | set(self._plan.topics))))


class SeenRequests(Interceptor):
    """The cluster as the program's requests have shown it, and as it was when it was asked last; see
    `oncelog.broker.prove.trials.bench.BrokerState`. It closes the connection of a request that would change what was
    there before.
    """

    only_reads = True

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.topics_before: frozenset[str] = frozenset()
        self.groups_before: frozenset[str] = frozenset()
        self.groups: set[str] = set()
        """The groups that the program uses."""
        self.transactions: dict[str, TransactionInfo | None] = {}
        """The transactional ids that the program uses; None: the cluster has not told of it yet."""
        self.input_ends: dict[str, dict[int, int]] = {}
        self.refusal: str | None = None
        """Why the trial must not go on."""
        self._writes = 0

    async def on_request(self, context: RequestContext) -> None:
        request, before = context.request, None
        group_id = getattr(request, "group_id", None)
        if group_id in self.groups_before:
            before = "group", group_id
        elif group_id:
            self.groups.add(group_id)
        if context.api_name == "Produce":
            names = [row.name or self.topic_name(row.topic_id) for row in request.topic_data]
            for name in self.topics_before.intersection(names):
                before = "topic", name
            self._writes += request.acks == 0
        if before is not None:
            self.refusal = self._upstream.exists(*before)
            raise CloseConnection(self.refusal)
        if context.api_name == "InitProducerId" and request.transactional_id:
            self.transactions.setdefault(request.transactional_id, None)

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        request = context.request
        epochs = [getattr(one, "member_epoch", None) for one in (request, response)]
        self._writes += context.api_name in WRITES_SEEN or epochs[0] != epochs[1]
        return response

    @property
    def writes(self) -> int:
        """How many requests of `WRITES_SEEN` have been answered."""
        return self._writes

    def open_transactions(self) -> list[tuple[str, int]]:
        """Return those that were open at the last look."""
        found = self.transactions.values()
        return [
            (one.transactional_id, one.timeout_ms) for one in found if one is not None and one.state in OPEN
        ]

    def members(self) -> tuple[GroupMember, ...]:
        """Return none: sessions end in real time."""
        return ()

    def ends(self, topic: str) -> dict[int, int]:
        """Return the ends of an input at the last look."""
        return self.input_ends[topic]

    def topic_name(self, topic_id: Uuid) -> str:
        """See `BrokerState`."""
        return super().topic_name(topic_id) or ""
