"""What rules need of a proxy: which APIs they look at, what they refuse, and fetch sessions that are the upstream's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oncelog.broker.dispatch.api import Api
from oncelog.broker.faults.fault_rules import FaultRules, apis_of
from oncelog.broker.faults.rule import REFUSED_BY_PROXY, TargetLimits, parse_rule
from oncelog.broker.faults.seen_sessions import SESSIONS_MAX, SeenSessions
from oncelog.broker.faults.words import RuleError
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.header import FETCH_KEY
from oncelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.faults.rules import ruled
from tests.harness.simulation import simulated


def context_of(request: FetchRequest) -> RequestContext:
    connection: Any = None
    return RequestContext(Api(HANDLERS[FETCH_KEY]), 12, 1, "app", connection, request)


def fetch(session_id: int, epoch: int, *partitions: int, forgotten: tuple[int, ...] = ()) -> RequestContext:
    topics = [FetchTopic("t", partitions=[FetchPartition(one) for one in partitions])] if partitions else []
    gone = [ForgottenTopic("t", partitions=list(forgotten))] if forgotten else []
    return context_of(
        FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)
    )


def partitions(sessions: SeenSessions, session_id: int) -> list[int]:
    return [item.partition.partition for item in sessions.items_of(session_id)]


@simulated
async def test_a_session_is_known_from_its_first_response_on() -> None:
    sessions = SeenSessions()
    await sessions.on_response(fetch(0, 0, 0, 1, 2), FetchResponse(session_id=7))
    assert partitions(sessions, 7) == [0, 1, 2]
    await sessions.on_response(fetch(7, 1, 3, forgotten=(1,)), FetchResponse(session_id=7))
    assert partitions(sessions, 7) == [0, 2, 3]
    await sessions.on_response(fetch(7, -1), FetchResponse(session_id=0))
    with pytest.raises(KafkaError) as error:
        sessions.items_of(7)
    assert error.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@simulated
async def test_a_refused_fetch_changes_no_session() -> None:
    sessions = SeenSessions()
    await sessions.on_response(fetch(0, 0, 0), FetchResponse(session_id=7))
    refused = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    await sessions.on_response(fetch(7, 9, 1), refused)
    assert partitions(sessions, 7) == [0]


@pytest.mark.slow
@simulated
async def test_the_oldest_sessions_are_forgotten() -> None:
    sessions = SeenSessions()
    for number in range(1, SESSIONS_MAX + 2):
        await sessions.on_response(fetch(0, 0, 0), FetchResponse(session_id=number))
    with pytest.raises(KafkaError):
        sessions.items_of(1)
    assert partitions(sessions, 2) == [0]


@pytest.mark.parametrize(
    ("rules", "apis"),
    [
        ([{"on": "Fetch", "hold": True}, {"on": ["EndTxn", "Fetch"], "close": True}], {"Fetch", "EndTxn"}),
        ([{"on": "*", "duplicate": True}], {"Produce", "TxnOffsetCommit", "EndTxn"}),
        ([{"on": "Fetch", "hold": True}, {"pause": True, "client_id": "a"}], None),
        ([{"on": "*", "close": True}], None),
    ],
)
def test_which_apis_rules_look_at(rules: list[dict[str, Any]], apis: set[str] | None) -> None:
    assert apis_of(map(parse_rule, rules)) == apis


@simulated
async def test_apis_follow_the_rules() -> None:
    async with ruled() as broker:
        first = broker.add(on="Fetch", close=True)
        assert broker.rules.apis == frozenset({"Fetch"})
        second = broker.add(on="Produce", close=True)
        assert broker.rules.apis == frozenset({"Fetch", "Produce"})
        broker.rules.remove(first)
        assert broker.rules.apis == frozenset({"Produce"})
        broker.rules.remove(second)


def test_what_a_proxy_cannot_do() -> None:
    rules = FaultRules(random.Random(1), TargetLimits(REFUSED_BY_PROXY))
    with pytest.raises(RuleError, match="crash_at: a proxy cannot let the brokers behind it die"):
        rules.add({"crash_at": "before decision"})
    assert rules.states == []
