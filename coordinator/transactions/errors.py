"""What a producer is told of an error that the log of a shard gave (Kafka: ``appendTransactionToLog``)."""

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
    """The error as the client of a step gets it."""
    told = _CLIENT_ERRORS.get(error.code)
    return error if told is None else KafkaError(told)


def producer_fenced_or_older(code: ErrorCode, version: int, known_since: int) -> ErrorCode:
    """``code`` for a request of ``version``: before ``known_since`` clients know no PRODUCER_FENCED (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < known_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
