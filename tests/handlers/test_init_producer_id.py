"""InitProducerId: never the same id twice."""

from __future__ import annotations

import pytest

from tests.sim.broker import SimBroker
from tests.sim.run import simulated
from wire.errors import ErrorCode
from wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@simulated
async def test_ids_are_unique_over_restarts_and_crashes() -> None:
    async with SimBroker() as broker:
        seen: list[int] = []
        for end in ("stop", "process", "power", "stop"):
            client = broker.connect()
            for _ in range(3):
                answer = await client.ask(InitProducerIdRequest(None, 0), 4, InitProducerIdResponse)
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                seen.append(answer.producer_id)
            if end == "stop":
                await broker.stop()
            else:
                await broker.crash(end)  # type: ignore[arg-type]
            await broker.start()
        assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "code"),
    [(None, 5, -1, ErrorCode.INVALID_REQUEST), (None, -1, 3, ErrorCode.INVALID_REQUEST), (None, 5, 3, 0),
     ("", -1, -1, ErrorCode.INVALID_REQUEST), ("t", -1, -1, ErrorCode.NOT_COORDINATOR)],
)  # fmt: skip
def test_requests_that_ask_for_more(
    transactional_id: str | None, producer_id: int, epoch: int, code: int
) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            request = InitProducerIdRequest(transactional_id, 1000, producer_id, epoch)
            answer = await broker.connect().ask(request, 4, InitProducerIdResponse)
            assert answer.error_code == code

    run()
