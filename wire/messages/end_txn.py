"""EndTxn (26): commits or aborts a transaction. Version 5 bumps the producer epoch at every end and returns it
(KIP-890)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, boolean, int16, int32, int64, string


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, kind="request", versions="0-5", flexible="3+"):
    """``committed``: true commits, false aborts."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api_key=26, kind="response", versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
