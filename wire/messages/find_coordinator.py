"""FindCoordinator (10): the coordinator of a group, a transactional id or a share group's partition.

``key_type``: 0 group, 1 transaction, 2 share (version 6, KIP-932). Version 4 asks for many keys at once
(KIP-699), 5 may return TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(
    Request["FindCoordinatorResponse"], api_key=10, kind="request", versions="0-6", flexible="3+"
):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, kind="response", versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
