"""FindCoordinator: honest about what is not there."""

from __future__ import annotations

import pytest

from tests.sim.broker import SimBroker
from tests.sim.run import simulated
from wire.errors import ErrorCode
from wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [(0, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (1, 6, ErrorCode.UNSUPPORTED_VERSION),
     (2, 5, ErrorCode.INVALID_REQUEST), (9, 6, ErrorCode.INVALID_REQUEST)],
)  # fmt: skip
def test_every_key_is_answered(key_type: int, version: int, code: ErrorCode) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            if version < 4:
                answer = await client.ask(
                    FindCoordinatorRequest("k", key_type), version, FindCoordinatorResponse
                )
                assert (answer.error_code, answer.node_id) == (code, -1)
            else:
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k", "l"])
                answer = await client.ask(request, version, FindCoordinatorResponse)
                got = [(row.key, row.error_code, row.node_id) for row in answer.coordinators]
                assert got == [("k", code, -1), ("l", code, -1)]

    run()
