"""RemoveRaftVoter (81): removes a voter from the quorum of the cluster's metadata (KIP-853)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Uuid, int16, int32, string, uuid


class RemoveRaftVoterRequest(
    Request["RemoveRaftVoterResponse"], api_key=81, kind="request", versions="0", flexible="0+"
):
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


class RemoveRaftVoterResponse(Message, api_key=81, kind="response", versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
