"""ListTransactions (66): transactions that this broker coordinates (KIP-664).

Version 1 filters by duration in milliseconds (KIP-994), 2 by a regular expression on the transactional id
(KIP-1152).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(
    Request["ListTransactionsResponse"], api_key=66, kind="request", versions="0-2", flexible="0+"
):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, api_key=66, kind="response", versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
