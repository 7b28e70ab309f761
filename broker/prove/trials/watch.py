"""`Watch`: sees the requests of a trial: who sends them, the state of the broker, and whether the program has nothing
more to do.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.prove.disturbances import FETCHES
from oncelog.broker.seams.clock import real_time
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from oncelog.broker.control.journal import Journal
    from oncelog.broker.host.served import Served
    from oncelog.broker.prove.trials.bench import BrokerState, GroupMember
    from oncelog.broker.requests.request import RequestContext

LEFT_OUT: Final = frozenset(
    ("ApiVersions", "GetTelemetrySubscriptions", "PushTelemetry", "SaslHandshake", "SaslAuthenticate")
)
"""Requests that say nothing about records and offsets."""
IDLE_APIS: Final = frozenset(
    (
        "ApiVersions",
        "ConsumerGroupDescribe",
        "ConsumerGroupHeartbeat",
        "DescribeCluster",
        "DescribeConfigs",
        "DescribeGroups",
        "DescribeTopicPartitions",
        "Fetch",
        "FindCoordinator",
        "GetTelemetrySubscriptions",
        "Heartbeat",
        "ListOffsets",
        "Metadata",
        "OffsetFetch",
        "PushTelemetry",
        "ShareFetch",
        "ShareGroupHeartbeat",
        "StreamsGroupHeartbeat",
    )
)
"""Requests of a program that has nothing to do."""
READS: Final = FETCHES | {"OffsetFetch"}
NODE_LISTS: Final = frozenset(("DescribeCluster", "DescribeTopicPartitions", "Metadata"))
"""Requests whose response names all nodes."""

Position = tuple[str, int]
"""A topic and a partition."""


class Sighting(NamedTuple):
    """A request of the program, as it came."""

    number: int
    """Its number in the journal."""
    listener: str
    node: int | None
    """The node that it was sent to, of several."""
    run: int
    """Which process of that instance sent it, from 1 on."""
    api: str
    at_s: float
    """Seconds of real time since the trial began."""
    writes: int
    """The writes (`BrokerState.writes`) before it came."""
    folder: int
    """The state of the program's folder when it came."""


class Watch(Interceptor):
    """``state_of`` gives the state of what has started, ``folder_state`` that of the program's folder.

    A request for the list of nodes waits until all nodes are ``settled`` again: a node that has died comes back within
    its session, in which Kafka goes on to list it. Between its session's early end and its return a client would see it
    leave the cluster, which is another failure: librdkafka 2.16 then waits for a coordinator that it still remembers.
    """

    only_reads = True

    def __init__(
        self,
        journal: Callable[[], Journal],
        state_of: Callable[[Served], BrokerState],
        folder_state: Callable[[], int],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._journal = journal
        self._folder_state = folder_state
        self._state_of = state_of
        self._settled = settled
        self._state: BrokerState
        self._began = real_time.monotonic()
        self.sightings: list[Sighting] = []
        self.writes_after: dict[int, int] = {}
        """The writes before the request of that number was done."""
        self.brought_records: set[int] = set()
        """The numbers of the Fetches and ShareFetches whose response has records."""
        self.runs: dict[str, int] = {}
        """How many processes each instance has had, by listener."""
        self.readers: set[tuple[str, int]] = set()
        """The processes, by listener and run, that have asked for offsets or records."""
        self.members: dict[GroupMember, tuple[str, int]] = {}
        """Which process, by listener and run, used each member id last."""
        self.last_activity = self._began
        """When the program last did something (real time)."""
        self._pending: dict[int, Sighting] = {}
        """The requests that are not done, by the identity of their context."""
        self._working: Counter[str] = Counter()
        """How many of them are not idle ones, by listener."""
        self._positions: dict[str, dict[Position, int]] = {}
        """From where each instance fetches, as its requests since the last rebalance say."""
        self._sessions: dict[tuple[str, int | None, int], dict[Position, int]] = {}
        """The partitions of fetch sessions, by listener, node and session id: a request leaves out what has not
        changed.
        """
        self._committed: dict[tuple[str, str, int], int] = {}
        self.uses_share_groups = False
        self.read_uncommitted: set[str] = set()
        """The topics that the program fetches with the isolation level read_uncommitted."""
        self.owners: dict[str, tuple[str, int]] = {}
        """Which process, by listener and run, used each transactional id last."""

    @property
    def now_s(self) -> float:
        """Seconds of real time since the trial began."""
        return real_time.monotonic() - self._began

    def attach(self, source: Served, node_id: int | None = None) -> None:
        """See `Observer`: a node or a proxy has started."""
        self._state = self._state_of(source)
        for identity, pending in list(self._pending.items()):
            if pending.node == node_id:
                self._forget(identity)
        self._positions.clear()  # a log may be shorter now
        self.note_activity()
        source.dispatcher.interception.install(self)

    def begin_run(self, listener: str) -> None:
        """A process of the instance behind a listener starts."""
        self.runs[listener] = self.runs.get(listener, 0) + 1
        self.forget_positions(listener)
        self.note_activity()

    def forget_positions(self, listener: str) -> None:
        """Forget how far the instance has fetched."""
        self._positions.pop(listener, None)

    def note_activity(self) -> None:
        """The program is not quiet: it did something, or something was done to it."""
        self.last_activity = real_time.monotonic()

    # -- what passes

    async def on_request(self, context: RequestContext) -> Any:
        """Note who asks what."""
        listener, api, request = context.connection.listener_name, context.api_name, context.request
        number = self._journal().last_number
        sighting = Sighting(
            number,
            listener,
            context.connection.node_id,
            self.runs.get(listener, 0),
            api,
            self.now_s,
            self.writes,
            self._folder_state(),
        )
        self.sightings.append(sighting)
        self._pending[id(context)] = sighting
        if api in READS:
            self.readers.add((listener, self.runs.get(listener, 0)))
        if api == "JoinGroup":
            self._positions.clear()  # a rebalance: what one instance has fetched may become another one's
        if api not in IDLE_APIS:
            self._working[listener] += 1
            if api != "OffsetCommit" or self._is_news(request):
                self.note_activity()
        elif api == "Fetch":
            self._note_positions(context, request)
        elif api == "ShareFetch":
            self.uses_share_groups = True
        member, group = getattr(request, "member_id", None), getattr(request, "group_id", None)
        if member and group:
            self.members[group, member] = listener, self.runs.get(listener, 0)
        transactional_id = getattr(request, "transactional_id", None)
        if transactional_id:
            self.owners[transactional_id] = listener, self.runs.get(listener, 0)
        if api in NODE_LISTS:
            await self._settled()
        return None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """Note fetch sessions, records, assignments, and new members."""
        if context.api_name == "Fetch" and context.request.session_epoch <= 0:
            begun = self._sessions.get(_session(context, context.request.session_id), {})
            self._sessions[_session(context, response.session_id)] = dict(begun)
        if context.api_name in FETCHES:
            if any(getattr(row, "records", None) for one in response.responses for row in one.partitions):
                self.note_activity()
                if (fetch := self._pending.get(id(context))) is not None:
                    self.brought_records.add(fetch.number)
        else:
            if getattr(response, "assignment", None) and context.api_name == "ConsumerGroupHeartbeat":
                self._positions.clear()
            member, group = getattr(response, "member_id", None), getattr(context.request, "group_id", None)
            if member and group:
                listener = context.connection.listener_name
                self.members[group, member] = listener, self.runs.get(listener, 0)
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """The request is done."""
        sighting = self._forget(id(context))
        if sighting is not None:
            self.writes_after[sighting.number] = self.writes

    def _forget(self, identity: int) -> Sighting | None:
        """Return the request that is no longer pending; None if it was not."""
        sighting = self._pending.pop(identity, None)
        if sighting is not None and sighting.api not in IDLE_APIS:
            self._working[sighting.listener] -= 1
        return sighting

    def _is_news(self, request: Any) -> bool:
        """Whether an OffsetCommit commits others than the last one: some clients repeat them for ever."""
        new = {
            (request.group_id, topic.name or str(topic.topic_id), row.partition_index): row.committed_offset
            for topic in request.topics
            for row in topic.partitions
        }
        is_news = any(self._committed.get(key) != offset for key, offset in new.items())
        self._committed.update(new)
        return is_news

    def _note_positions(self, context: RequestContext, request: Any) -> None:
        """Note from where an instance fetches: what the request says, and what its session remembers (KIP-227)."""
        session = self._sessions.setdefault(_session(context, request.session_id), {})
        if request.session_epoch <= 0:
            session.clear()
        for topic in request.topics:
            name = self._name(topic)
            for row in topic.partitions:
                session[name, row.partition] = row.fetch_offset
            if request.isolation_level == 0:
                self.read_uncommitted.add(name)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.pop((self._name(topic), index), None)
        self._positions.setdefault(context.connection.listener_name, {}).update(session)

    def _name(self, topic: Any) -> str:
        if topic.topic_id == ZERO_UUID:
            return str(topic.topic)
        return self._state.topic_name(topic.topic_id)

    # -- the state of the broker

    @property
    def writes(self) -> int:
        """How much has been written so far."""
        return self._state.writes

    def open_transactions(self) -> Iterable[tuple[str, int]]:
        """Return the transactional ids with an open transaction, each with its time-out in milliseconds."""
        return self._state.open_transactions()

    def group_members(self) -> Iterable[GroupMember]:
        """Return the members of groups whose sessions can be hurried."""
        return self._state.members()

    def has_seen(self, listener: str, run: int) -> bool:
        """Whether a process of the program has sent a request."""
        return any(one.listener == listener and one.run == run for one in self.sightings)

    def is_pending(self, number: int) -> bool:
        """Whether the request of that number has no response yet."""
        return any(one.number == number for one in self._pending.values())

    def has_work(self, listeners: Iterable[str]) -> bool:
        """Whether a request of these instances is under way that may change something."""
        return any(self._working[one] > 0 for one in listeners)

    def is_at_end(self, topics: Iterable[str]) -> bool:
        """Whether the program has fetched to the end of each partition of the topics that has records."""
        for topic in topics:
            for index, end in self._state.ends(topic).items():
                reached = max(
                    (positions.get((topic, index), 0) for positions in self._positions.values()), default=0
                )
                if reached < end:
                    return False
        return True


def _session(context: RequestContext, session_id: int) -> tuple[str, int | None, int]:
    return context.connection.listener_name, context.connection.node_id, session_id
