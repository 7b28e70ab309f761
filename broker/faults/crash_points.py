"""`CrashPoints`: lets the broker die before or after a write, or a response, where a rule says ``crash_at``.

What is written is recognised by its bytes, on their way into the file, and a response in the dispatcher; nothing that
writes or responds knows of it. Nobody watches while there is no such rule. Of a partition with several replicas, only
the leader's write counts: the others copy it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.faults.crash_point_names import AFTER, BEFORE, RESPONSE, event_of
from oncelog.broker.faults.rule import NODE
from oncelog.broker.handlers.table import GROUP, PARTITION, TOPIC, TRANSACTIONAL_ID
from oncelog.broker.log.data_directory import partition_of
from oncelog.broker.log.file_names import LOG_SUFFIX
from oncelog.broker.seams.memory_files import ProcessDied
from oncelog.broker.seams.mortal_files import MortalFileSystem
from oncelog.coordinator.transactions.state import TransactionState
from oncelog.wire.batch import read_header
from oncelog.wire.records import iterate_records
from oncelog.wire.stored import groups, share, transactions
from oncelog.wire.stored.coordinator import decode_key, decode_value
from oncelog.wire.topic_names import (
    CLUSTER_METADATA_TOPIC,
    OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncelog.broker.faults.active_rule import ActiveRule
    from oncelog.broker.faults.fault_rules import FaultRules
    from oncelog.broker.node.node import Node
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.seams.files import Buffer
    from oncelog.wire.batch import BatchHeader

CRASH_AT = "crash_at"
"""The action of rules for crash points."""

_EVENT_OF_STATE = {
    TransactionState.ONGOING: "partitions",
    TransactionState.PREPARE_COMMIT: "decision",
    TransactionState.PREPARE_ABORT: "decision",
    TransactionState.COMPLETE_COMMIT: "completion",
    TransactionState.COMPLETE_ABORT: "completion",
}
_OFFSET_KEYS: dict[int, Any] = {groups.OffsetCommitKey.API_KEY: groups.OffsetCommitKey}

Event = tuple[str, dict[str, Any]]
"""One of `oncelog.broker.faults.crash_point_names.EVENTS`, and what a rule can ask of it."""


class CrashPoints(Interceptor):
    """``crash`` ends the process, or what stands for it; it is given the rule. If it returns, whatever the node
    still does with its files raises ProcessDied. ``node_id``: which one of several nodes it is; ``running`` gives all
    of them, for what one writes may be of a transaction that another one coordinates.
    """

    def __init__(
        self,
        rules: FaultRules,
        crash: Callable[[ActiveRule], None],
        node_id: int | None = None,
        running: Callable[[], Iterable[Node]] | None = None,
    ) -> None:
        self._rules = rules
        self._crash = crash
        self._node_id = node_id
        self._running = running
        self._node: Node | None = None
        self._watches_responses = False

    def update(self, node: Node) -> None:
        """Watch those events in ``node`` that rules name. Called with each change of the rules."""
        if node is not self._node:
            self._node, self._watches_responses = node, False
        events = {event_of(active.rule.value) for active in self._rules.of(CRASH_AT)}
        wanted = RESPONSE in events
        if wanted and not self._watches_responses:
            node.dispatcher.interception.install(self)
        elif self._watches_responses and not wanted:
            node.dispatcher.interception.remove(self)
        self._watches_responses = wanted
        if isinstance(node.files, MortalFileSystem):
            node.files.watch(self if events - {RESPONSE} else None)

    # -- writes: see `WriteWatcher`

    def before_write(self, path: str, data: Buffer) -> None:
        """Die, if a rule says so, in place of this write."""
        self._meet(BEFORE, path, data)

    def after_write(self, path: str, data: Buffer) -> None:
        """Die, if a rule says so, after this write."""
        self._meet(AFTER, path, data)

    def _meet(self, when: str, path: str, data: Buffer) -> None:
        for event, facts in self._events(path, data):
            self._die_if_due(f"{when} {event}", facts)

    def _die_if_due(self, point: str, facts: dict[str, Any]) -> None:
        rule = self._rules.fire_for_event(CRASH_AT, point, {**facts, NODE: self._node_id})
        if rule is not None:
            self._crash(rule)

    def _events(self, path: str, data: Buffer) -> Iterator[Event]:
        """Yield the events of a write to a file."""
        directory, _, name = path.rpartition("/")
        partition = partition_of(directory.rpartition("/")[2])
        if partition is None or not name.endswith(LOG_SUFFIX) or partition[0] == CLUSTER_METADATA_TOPIC:
            return
        if self._node_id is not None and not self._leads(*partition):
            return
        header = read_header(data)
        facts: dict[str, Any] = {TOPIC: partition[0], PARTITION: partition[1]}
        if header.is_transactional:
            facts[TRANSACTIONAL_ID] = self._transactional_id(header.producer_id)
        if header.is_control:
            yield "marker", facts
        elif partition[0] == TRANSACTIONS_TOPIC:
            yield from _transaction_events(data, header)
        elif partition[0] == OFFSETS_TOPIC:
            for group in _groups_of_offsets(data, header):
                yield "offsets", {**facts, GROUP: group}
        elif partition[0] == SHARE_GROUP_STATE_TOPIC:
            yield from self._share_states(data, header)
        else:
            yield "append", facts

    def _leads(self, topic: str, partition: int) -> bool:
        assert self._node is not None
        found = self._node.metadata.image.topics.get(topic)
        return found is not None and found.partitions[partition].leader == self._node_id

    def _share_states(self, data: Buffer, header: BatchHeader) -> Iterator[Event]:
        """Yield the events of a batch of ``__share_group_state``."""
        assert self._node is not None
        topics = self._node.metadata.image.topics_by_id
        for record in iterate_records(data, header):
            key = None if record.key is None else decode_key(record.key, share.KEY_TYPES)
            if isinstance(key, share.ShareSnapshotKey | share.ShareUpdateKey):
                topic = topics.get(key.topic_id)
                name = None if topic is None else topic.name
                yield "share state", {TOPIC: name, PARTITION: key.partition, GROUP: key.group_id}

    def _transactional_id(self, producer_id: int) -> str | None:
        assert self._node is not None
        for node in [self._node] if self._running is None else self._running():
            for context in node.transactions.runtime.loaded.values():
                for transactional_id, transaction in context.shard.transactions.items():
                    if transaction.metadata.producer_id == producer_id:
                        return transactional_id
        return None

    # -- responses: see `Interceptor`

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        """Die, if a rule says so, in place of this response."""
        rule = self._rules.fire_for_request(CRASH_AT, f"{BEFORE} {RESPONSE}", context)
        if rule is not None:
            self._crash(rule)
            raise ProcessDied(context.api.row.name)
        return response

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        """If a rule says so, send the response and die after it."""
        if response is None:
            return
        rule = self._rules.fire_for_request(CRASH_AT, f"{AFTER} {RESPONSE}", context)
        if rule is not None:
            context.connection.writer.send_now()
            self._crash(rule)


def _transaction_events(data: Buffer, header: BatchHeader) -> Iterator[Event]:
    """Yield the events of a batch of ``__transaction_state``."""
    for record in iterate_records(data, header):
        if record.key is not None and record.value is not None:
            key = decode_key(record.key, transactions.KEY_TYPES)
            value = decode_value(record.value, transactions.TransactionLogValue)
            assert isinstance(key, transactions.TransactionLogKey)
            assert isinstance(value, transactions.TransactionLogValue)
            event = _EVENT_OF_STATE.get(TransactionState(value.transaction_status))
            if event is not None:
                yield event, {TRANSACTIONAL_ID: key.transactional_id}


def _groups_of_offsets(data: Buffer, header: BatchHeader) -> list[str]:
    """Return the groups whose offsets a batch of ``__consumer_offsets`` commits."""
    found: dict[str, None] = {}
    for record in iterate_records(data, header):
        if record.key is not None and record.value is not None:
            key = decode_key(record.key, _OFFSET_KEYS)
            if isinstance(key, groups.OffsetCommitKey):
                found[key.group] = None
    return list(found)
