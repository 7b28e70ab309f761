"""Operations: the clients that are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.client.connection import SOFTWARE_NAME
from oncelog.broker.control.changes import check_timeout
from oncelog.broker.handlers.table import GROUP, TRANSACTIONAL_ID
from oncelog.broker.seams.clock import real_time
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.join_group import JoinGroupRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from oncelog.broker.control.controlled import Controlled

JOINING = (
    JoinGroupRequest.API_KEY,
    ConsumerGroupHeartbeatRequest.API_KEY,
    ShareGroupHeartbeatRequest.API_KEY,
    InitProducerIdRequest.API_KEY,
)
"""The requests by which a client says what it is."""


async def connected_clients(
    broker: Controlled, *, known: dict[str, list[str]] | None = None, timeout: float = 0
) -> dict[str, list[str]]:
    """Return the client ids that have a connection, each with the groups and transactional ids that it has joined:
    ``{"app": ["group billing"]}``. Connections without a client id are left out, and those of proxies of oncelog.

    known: clients that do not count, as this returned them earlier, unless they have joined something else since. It
        waits until no others are left, ``timeout`` seconds at most: a client's end takes a moment to be seen.

    Raises InvalidArgumentError.
    """
    deadline = real_time.monotonic() + check_timeout(timeout)
    while True:
        change = broker.journal.changes.next()
        found = _connected(broker)
        for client_id, roles in (known or {}).items():
            if found.get(client_id, set()).issubset(roles):
                found.pop(client_id, None)
        if not found or real_time.monotonic() >= deadline:
            return {client_id: sorted(found[client_id]) for client_id in sorted(found)}
        with real_time.move_on_at(deadline):
            await change.wait()


def _connected(broker: Controlled) -> dict[str, set[str]]:
    """Return the client ids, and what each has joined."""
    client_ids = {
        (one.transport.peer, one.node_id): one.client_id
        for one in broker.connections
        if one.client_id and one.software[0] != SOFTWARE_NAME
    }
    found: dict[str, set[str]] = {client_id: set() for client_id in client_ids.values()}
    for api_key in JOINING:
        for entry in broker.journal.entries(api_key):
            client_id = client_ids.get((entry.peer, entry.node_id))
            if client_id is not None:
                facts = broker.journal.facts(entry)
                found[client_id].update(f"group {name}" for name in facts[GROUP])
                found[client_id].update(f"transactional id {name}" for name in facts[TRANSACTIONAL_ID])
    return found
