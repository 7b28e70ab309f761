"""`Turn`: one API in one version, on one target. A `Case` says what is asked then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.differential import Session
from tests.common.batches import WAIT_MS, batch, now_ms
from tests.common.definitions import Fields
from tests.common.frames import CLOSED

STILL = frozenset((14, 15, 16, 51))
"""Errors of a coordinator that is not there yet, or still at work."""
NO_SUCH_ID = bytes(range(1, 17))


class Turn:
    """``name`` is one that nothing else uses. ``owner`` has logged in with a password: delegation tokens want it."""

    def __init__(self, session: Session, owner: Session, api: str, version: int, name: str) -> None:
        self.session = session
        self.owner = owner
        self.api = api
        self.version = version
        self.name = name
        self.missing = f"{name}-missing"
        self.succeeded = False
        """Whether a response, or a row of one, had no error."""
        self.failed = False
        """Whether a response, or a row of one, had an error, or the connection was closed."""

    def ask(self, values: Fields | None = None, *, by: Session | None = None, note: str = "") -> Any:
        """The response once no coordinator is `STILL` at work, which is observed."""
        response = self.ask_unobserved(values, by=by)
        self.observe(response, note)
        return response

    def ask_unobserved(self, values: Fields | None = None, *, by: Session | None = None) -> Any:
        """The response, without being observed but for whether it is an error."""
        response = wait_until(
            by or self.session, self.api, self.version, values, lambda codes: not STILL & codes
        )
        self.note_outcome(response)
        return response

    def note_outcome(self, response: Any) -> None:
        codes = codes_of(response) or {0}
        self.succeeded |= response != CLOSED and 0 in codes
        self.failed |= response == CLOSED or codes != {0}

    def observe(self, response: Any, note: str = "") -> None:
        self.session.observe(f"{self.api} v{self.version} {note}".strip(), response)

    def prepare(self, api: str, version: int, values: Fields, *, by: Session | None = None) -> Any:
        """The response to another request, once it succeeds."""
        return wait_until(by or self.session, api, version, values, lambda codes: codes <= {0})

    def topic(self, partitions: int = 1, records: int = 0, **configs: str) -> bytes:
        """Create the topic of this turn, with records in partition 0 that are a minute apart; its id."""
        given = {key.replace("_", "."): value for key, value in configs.items()}
        topic_id = self.session.topic(self.name, partitions, given)
        first = now_ms() - 60_000 * records
        for number in range(records):
            one = batch(1, base_timestamp=first + 60_000 * number)
            assert self.session.produce(self.name, one)["error_code"] == 0
        return topic_id


Case = Callable[[Turn], None]
Cases = dict[str, Case]
"""By the name of the API. A case sends requests that succeed and requests that fail, whatever the version."""


def wait_until(
    session: Session, api: str, version: int, values: Fields | None, done: Callable[[set[int]], bool]
) -> Any:
    """The first response with whose error codes ``done`` is true."""
    deadline = now_ms() + WAIT_MS
    while not done(codes_of(response := session.call_unobserved(api, version, values))):
        assert now_ms() < deadline, (api, version, response)
    return response


def codes_of(value: Any) -> set[int]:
    """All error codes of a response."""
    if isinstance(value, list):
        return set().union(*map(codes_of, value))
    if not isinstance(value, dict):
        return set()
    return {one for key, one in value.items() if key.endswith("error_code")}.union(
        *map(codes_of, value.values())
    )


def ordered(response: Any, *keys: str) -> Any:
    """The response with rows that have one of the fields ``keys`` in its order: Kafka's is that of hash tables."""
    if isinstance(response, dict):
        return {field: ordered(value, *keys) for field, value in response.items()}
    if not isinstance(response, list):
        return response
    rows = [ordered(row, *keys) for row in response]
    by = [key for key in keys if rows and isinstance(rows[0], dict) and key in rows[0]]
    return sorted(rows, key=lambda row: [str(row[key]) for key in by]) if by else rows
