"""Half a minute of the search for costly requests; `make soak` searches for an hour."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.handlers import list_groups
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.messages.list_groups import ListGroupsRequest
from tests.soak.costly_requests import Search

SEEDS = range(1)
TRIALS = 60
BYTES_MAX = 60_000
"""Lines are counted thirty times as slowly as they run. A turn costs no more for a larger request, unless it is new."""
LINES_MAX = 400_000
"""Lines of Python in a turn: about ten milliseconds."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_that_the_search_finds_holds_the_loop(seed: int) -> None:
    search = Search(seed, BYTES_MAX, "lines")
    for _ in range(TRIALS):
        trial = search.step()
        assert trial.cost < LINES_MAX, trial.row()


def test_the_search_finds_a_handler_whose_work_grows_with_the_square(monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_is = list_groups.handle

    def handle(services: Any, request: ListGroupsRequest, context: Any) -> Any:
        for one in request.states_filter:
            for other in request.states_filter[:1_000]:
                assert one != other * 2
        return as_it_is(services, request, context)

    monkeypatch.setattr(list_groups, "handle", handle)
    [key] = [key for key, handler in HANDLERS.items() if handler.name == "list_groups"]
    search = Search(1, BYTES_MAX, "lines", [key])
    found = (search.step() for _ in range(60))
    assert any(trial.cost > LINES_MAX for trial in found)
