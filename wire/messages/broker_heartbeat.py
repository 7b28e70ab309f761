"""BrokerHeartbeat (63): a broker tells the controller that it is alive, and what it wants (KIP-631).

Version 1 has data directories that failed (KIP-858), 2 those that take no new replicas (KIP-1066), which are null as
long as the broker has not said.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Uuid, array, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(
    Request["BrokerHeartbeatResponse"], api_key=63, kind="request", versions="0-2", flexible="0+"
):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, kind="response", versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
