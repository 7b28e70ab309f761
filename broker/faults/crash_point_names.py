"""The crash points: the places in the way of a transaction, or of an acknowledgement in a share group, where a rule can
let the broker die.

docs/explanation/exactly-once.md and docs/explanation/share-groups.md say in their tables of crashes what a start finds
after each; a test compares them.
"""

from __future__ import annotations

from oncelog.broker.handlers.table import GROUP, PARTITION, TOPIC, TRANSACTIONAL_ID

BEFORE, AFTER = "before", "after"
RESPONSE = "response"

EVENTS: dict[str, tuple[str, ...]] = {
    "partitions": (TRANSACTIONAL_ID, "node"),
    "append": (TOPIC, PARTITION, TRANSACTIONAL_ID, "node"),
    "offsets": (GROUP, TRANSACTIONAL_ID, "node"),
    "decision": (TRANSACTIONAL_ID, "node"),
    "marker": (TOPIC, PARTITION, TRANSACTIONAL_ID, "node"),
    "completion": (TRANSACTIONAL_ID, "node"),
    "share state": (TOPIC, PARTITION, GROUP, "node"),
    RESPONSE: (TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID, "client_id", "version", "listener", "node", "on"),
}
"""The events, in the order in which the leader writes them, each with the filters that a rule may have for it:

- ``partitions``: the record that adds partitions to a transaction, to ``__transaction_state``
- ``append``: a producer's batch, to a partition; or the broker's, to a dead-letter queue
- ``offsets``: committed offsets, to ``__consumer_offsets``, by a transaction or not
- ``decision``: the record that a transaction is to be committed or aborted
- ``marker``: the control batch that ends it in one partition
- ``completion``: the record that all markers are written
- ``share state``: the record of what a share group has acknowledged in a partition, or got back, to
  ``__share_group_state``
- ``response``: a response is sent, of EndTxn unless the rule says ``on``
"""

CRASH_POINTS = tuple(f"{when} {event}" for event in EVENTS for when in (BEFORE, AFTER))


def event_of(point: str) -> str:
    """Return the event of a crash point."""
    return point.partition(" ")[2]
