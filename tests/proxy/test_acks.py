"""The acks of a Produce, read from its bytes."""

from __future__ import annotations

import pytest

from oncelog.broker.proxy.relay.acks import acks_of
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.produce import ProduceRequest


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("client_id", [None, "", "c", "c" * 300])
@pytest.mark.parametrize("transactional_id", [None, "", "t", "t" * 300])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks(version: int, client_id: str | None, transactional_id: str | None, acks: int) -> None:
    frame = encode_request(ProduceRequest(transactional_id, acks), version, 7, client_id)
    is_flexible = version >= 9
    known_at = None
    for size in range(len(frame) + 1):
        found = acks_of(memoryview(frame)[:size], 0, is_flexible)
        if found is not None:
            known_at = known_at or size
            assert found == acks
    assert known_at is not None
    assert acks_of(memoryview(b"rest" + frame), 4, is_flexible) == acks


def test_acks_after_tagged_fields_of_the_header() -> None:
    frame = encode_request(ProduceRequest(None, 1), 9, 7, "c")
    head = 4 + 8 + 2 + 1
    assert frame[head] == 0
    tagged = memoryview(frame[:head] + b"\x01\x05\x02ab" + frame[head + 1 :])
    assert acks_of(tagged, 0, True) == 1
    assert acks_of(tagged[: head + 4], 0, True) is None
