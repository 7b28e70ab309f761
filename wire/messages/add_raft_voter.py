"""AddRaftVoter (80): adds a voter to the quorum of the cluster's metadata (KIP-853).

With version 1 the client may get its response before the change is committed (``ack_when_committed``).
"""

from __future__ import annotations

from oncelog.wire.schema import (
    Message,
    Request,
    Struct,
    Uuid,
    array,
    boolean,
    int16,
    int32,
    string,
    uint16,
    uuid,
)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(
    Request["AddRaftVoterResponse"], api_key=80, kind="request", versions="0-1", flexible="0+"
):
    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, kind="response", versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
