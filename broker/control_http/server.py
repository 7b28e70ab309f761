"""`serve_control`: serves the control API with Hypercorn in the broker's Trio loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from oncelog.broker.seams.transport import SocketListener

IDLE_SECONDS = 300
"""A connection without a request is closed after so long. Clients keep theirs for reuse."""
UNREAD_SECONDS = 5
"""A client that does not read its response is disconnected after so long (on Linux). Until then it can hold up the end:
Hypercorn's sends cannot be cancelled."""
HEAD_MAX_BYTES = 64 * 1024
"""A request's longest line and headers."""


async def serve_control(
    app: ASGIApp, listener: SocketListener, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled. The listener is closed then."""
    listener.set_unread_limit(UNREAD_SECONDS)
    config = Config.from_mapping(
        bind=f"fd://{listener.detach()}",
        # Hypercorn would write to Python's logging, which belongs to the process.
        errorlog=None,
        include_server_header=False,
        keep_alive_timeout=IDLE_SECONDS,
        keep_alive_max_requests=2**63,
        h11_max_incomplete_size=HEAD_MAX_BYTES,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(_serve, app, config)
        task_status.started()


async def _serve(app: ASGIApp, config: Config, task_status: trio.TaskStatus[list[str]]) -> None:
    await serve(
        cast("Any", app), config, shutdown_trigger=trio.sleep_forever, task_status=task_status, mode="asgi"
    )
