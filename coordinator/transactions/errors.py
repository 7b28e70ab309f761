"""Translates errors of a shard's log for producers (Kafka: ``appendTransactionToLog``)."""

from __future__ import annotations

from oncelog.wire.errors import ErrorCode, KafkaError

_CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def to_client_error(error: KafkaError) -> KafkaError:
    """The error that a producer gets."""
    client_code = _CLIENT_ERRORS.get(error.code)
    return error if client_code is None else KafkaError(client_code)


def producer_fenced_or_older(code: ErrorCode, version: int, fenced_version: int) -> ErrorCode:
    """``code``, but INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED before ``fenced_version`` (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
