"""Every request in every state of a log-in: both targets answer alike, and let in who has the password, in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from compat_tests.on_demand import OnDemand
from compat_tests.security.sasl import PASSWORD, USER, SaslTarget, while_sessions_pass
from oncelog.wire.framing import encode_frame
from oncelog.wire.header import API_VERSIONS_KEY, encode_request_header
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.wire.schema import Message, Request
from tests.common.recorded.recorder import Recorder
from tests.common.sasl_client import Closed, SaslClient, ScramClient

pytestmark = pytest.mark.slow

RIGHT, WRONG = f"\0{USER}\0{PASSWORD}".encode(), f"\0{USER}\0x".encode()
FOR_ANOTHER = f"root\0{USER}\0{PASSWORD}".encode()
"""The password of `USER`, with the wish to be root."""
SCRAM = "SCRAM-SHA-256"
CLOSED, SERVED = "closed", "served"

ILLEGAL_STATE, UNSUPPORTED_MECHANISM = 34, 33
ELSEWHERE = ApiVersionsRequest("x", "1", "other", 1)

Outcome = tuple[object, ...] | str
Answered = tuple[Outcome, str]
"""The answer to a request, and whether the client is served after it."""


# -- states: what has been said before


def handshake(mechanism: str, version: int, client: SaslClient) -> None:
    assert client.handshake(mechanism, version).error_code == 0


def api_versions_of_the_future(client: SaslClient) -> None:
    client.socket.sendall(encode_frame(encode_request_header(API_VERSIONS_KEY, 99, 7, "x", True)))
    assert client.receive()


def amid_scram(client: SaslClient) -> None:
    handshake(SCRAM, 1, client)
    client.authenticate(ScramClient(SCRAM, USER, PASSWORD).first())


def logged_in(mechanism: str, client: SaslClient) -> None:
    client.log_in(mechanism, USER, PASSWORD)


def renewing(mechanism: str, client: SaslClient) -> None:
    logged_in(mechanism, client)
    handshake(mechanism, 1, client)


def renewing_amid_scram(client: SaslClient) -> None:
    logged_in(SCRAM, client)
    amid_scram(client)


def renewing_by_another_mechanism(client: SaslClient) -> None:
    logged_in(SCRAM, client)
    handshake("PLAIN", 1, client)


def renewed(client: SaslClient) -> None:
    logged_in("PLAIN", client)
    logged_in("PLAIN", client)


STATES: dict[str, tuple[bool, Callable[[SaslClient], object]]] = {
    "nothing": (False, lambda client: None),
    "ApiVersions": (False, lambda client: client.call(ApiVersionsRequest("x", "1"), 3)),
    "an ApiVersions that is refused": (False, lambda client: client.call(ApiVersionsRequest("", "1"), 3)),
    "an ApiVersions of a version that is not served": (False, api_versions_of_the_future),
    "SaslHandshake": (False, partial(handshake, "PLAIN", 1)),
    "SaslHandshake for SCRAM": (False, partial(handshake, SCRAM, 1)),
    "SaslHandshake 0": (False, partial(handshake, "PLAIN", 0)),
    "amid SCRAM": (False, amid_scram),
    "logged in by PLAIN": (False, partial(logged_in, "PLAIN")),
    "logged in by SCRAM": (False, partial(logged_in, SCRAM)),
    "a session with an end": (True, partial(logged_in, "PLAIN")),
    "a renewal has begun": (True, partial(renewing, "PLAIN")),
    "a renewal amid SCRAM": (True, renewing_amid_scram),
    "a renewal by another mechanism": (True, renewing_by_another_mechanism),
    "renewed": (True, renewed),
}
"""By name: whether it is on the listener whose sessions end, and what the client has done."""

LET_IN: dict[str, set[str]] = {
    "nothing": set(),
    "ApiVersions": set(),
    "an ApiVersions that is refused": set(),
    "an ApiVersions of a version that is not served": set(),
    "SaslHandshake": {"the right password", "the right password, version 0"},
    "SaslHandshake for SCRAM": set(),
    "SaslHandshake 0": {"the right password without a header"},
    "amid SCRAM": set(),
    "a renewal has begun": {"the right password", "the right password, version 0"},
    "a renewal amid SCRAM": set(),
    "a renewal by another mechanism": set(),
}
"""The requests after which the client is served, by the state of a log-in that is not complete."""


# -- requests


def asked(request: Request[Message], version: int, client: SaslClient) -> Outcome:
    response = client.call(request, version)
    names = ("error_code", "error_message", "mechanisms", "session_lifetime_ms")
    found = {name: getattr(response, name, None) for name in names}
    if found["mechanisms"]:
        found["mechanisms"] = sorted(found["mechanisms"])
    if found["session_lifetime_ms"]:
        found["session_lifetime_ms"] = "some"
    if isinstance(request, CreateDelegationTokenRequest):
        del found["error_message"]
    return tuple(found.values())


def bare(frame: bytes, client: SaslClient) -> Outcome:
    client.socket.sendall(encode_frame(frame))
    answer = client.receive()
    return ("bytes", answer if len(answer) < 4 else "some")


REQUESTS: dict[str, Callable[[SaslClient], Outcome]] = {
    "ApiVersions": partial(asked, ApiVersionsRequest("x", "1"), 3),
    "ApiVersions for another cluster": partial(asked, ELSEWHERE, 5),
    "ApiVersions for a cluster, and no node": partial(asked, ApiVersionsRequest("x", "1", "other"), 5),
    "SaslHandshake PLAIN": partial(asked, SaslHandshakeRequest("PLAIN"), 1),
    "SaslHandshake PLAIN 0": partial(asked, SaslHandshakeRequest("PLAIN"), 0),
    "SaslHandshake SCRAM": partial(asked, SaslHandshakeRequest(SCRAM), 1),
    "SaslHandshake GSSAPI": partial(asked, SaslHandshakeRequest("GSSAPI"), 1),
    "the right password": partial(asked, SaslAuthenticateRequest(RIGHT), 2),
    "the right password, version 0": partial(asked, SaslAuthenticateRequest(RIGHT), 0),
    "a wrong password": partial(asked, SaslAuthenticateRequest(WRONG), 2),
    "the right password, to be root": partial(asked, SaslAuthenticateRequest(FOR_ANOTHER), 2),
    "an empty token": partial(asked, SaslAuthenticateRequest(b""), 2),
    "the right password without a header": partial(bare, RIGHT),
    "a wrong password without a header": partial(bare, WRONG),
    "an empty frame": partial(bare, b""),
    "nonsense": partial(bare, b"\xff" * 30),
    "ListGroups": partial(asked, ListGroupsRequest(), 4),
    "CreateDelegationToken": partial(asked, CreateDelegationTokenRequest(None, None, [], 60_000), 3),
}


def outcome(ask: Callable[[SaslClient], Outcome], client: SaslClient) -> Answered:
    found: Outcome = CLOSED
    try:
        found = ask(client)
        served = client.call(ListGroupsRequest(), 4).error_code == 0
    except Closed:
        served = False
    return found, SERVED if served else CLOSED


# -- the grid


@pytest.fixture(scope="module")
def both() -> Iterator[OnDemand[SaslTarget]]:
    def make(name: str) -> contextlib.AbstractContextManager[SaslTarget]:
        target = SaslTarget(name)
        target.properties["connection.failed.authentication.delay.ms"] = "0"
        return target.running()

    with OnDemand(make) as found:
        yield found


def are_alike(kafka: Answered, oncelog: Answered) -> bool:
    """Whether the targets do the same, but for what docs/reference/differences.md says of a log-in's other requests."""
    if kafka == oncelog:
        return True
    if (kafka[1], oncelog[1]) != (CLOSED, CLOSED):
        return False
    has_said = kafka[0][0] if oncelog[0] == CLOSED else oncelog[0][0] if kafka[0] == CLOSED else None
    return has_said == (ILLEGAL_STATE if oncelog[0] == CLOSED else UNSUPPORTED_MECHANISM)


def answer(target: SaslTarget, state: str, request: str) -> Answered:
    has_end, prepare = STATES[state]
    with SaslClient(target.short_sessions if has_end else target.bootstrap) as client:
        prepare(client)
        return outcome(REQUESTS[request], client)


def steady(ask: Callable[[], Answered]) -> Answered:
    """What is answered twice in a row: a session may end while a slow machine is asking."""
    last, answered = None, ask()
    while answered != last:
        last, answered = answered, ask()
    return answered


@pytest.mark.parametrize("state", STATES)
def test_every_request_in_every_state(answers: Recorder, both: OnDemand[SaslTarget], state: str) -> None:
    def ask(target: str) -> dict[str, Answered]:
        return {name: steady(partial(answer, both[target], state, name)) for name in REQUESTS}

    found = answers.both(ask)
    rows = {name: (found["kafka"][name], found["oncelog"][name]) for name in REQUESTS}
    different = {name: row for name, row in rows.items() if not are_alike(*row)}
    assert not different, "\n".join(f"{state}, then {name}: {row}" for name, row in different.items())
    get_in = {name for name, (_, served) in found["oncelog"].items() if served == SERVED}
    if state in LET_IN:
        assert get_in == LET_IN[state]


def test_every_request_after_the_sessions_end(answers: Recorder, both: OnDemand[SaslTarget]) -> None:
    """Nothing but a renewal is served."""

    def ask(target: str) -> dict[str, Answered]:
        address = both[target].short_sessions
        clients = {request: SaslClient(address) for request in REQUESTS}
        for client in clients.values():
            logged_in("PLAIN", client)
        for _ in while_sessions_pass(address, 1):
            pass
        said = {request: outcome(REQUESTS[request], client) for request, client in clients.items()}
        for client in clients.values():
            client.socket.close()
        return said

    found = answers.both(ask)
    for request in REQUESTS:
        assert are_alike(found["kafka"][request], found["oncelog"][request]), request
    assert all(served == CLOSED for _, served in found["oncelog"].values())
    answered = {request for request, (said, _) in found["oncelog"].items() if said != CLOSED}
    assert answered == {request for request in REQUESTS if request.startswith("SaslHandshake")}
