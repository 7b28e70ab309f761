"""DeleteTopics (20): by name, and by id from version 6.

Version 5 adds error messages. Up to version 5 topics are a list of names, from 6 on of names and ids (KIP-516).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, Uuid, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(nullable="6+", default=None)
    topic_id: Uuid = uuid()


class DeleteTopicsRequest(
    Request["DeleteTopicsResponse"], api_key=20, kind="request", versions="1-6", flexible="4+"
):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, kind="response", versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32(ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
