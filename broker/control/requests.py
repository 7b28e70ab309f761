"""Requests that a test asks the journal for, and waits for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from oncelog.broker.control.changes import check_timeout
from oncelog.broker.control.errors import InvalidArgumentError, WaitTimeoutError
from oncelog.broker.control.journal import RequestListener
from oncelog.broker.control.names import check_word
from oncelog.broker.handlers.table import GROUP, HANDLERS, TOPIC, TRANSACTIONAL_ID, api_name, api_names
from oncelog.broker.scheduling.slices import Slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from oncelog.broker.control.journal import Entry, Journal
    from oncelog.broker.control.request_types import Request

NO_ERROR: Final = ErrorCode.NONE.name
"""As a filter: requests without an error."""
REQUESTS_SHOWN = 5
"""How many requests the error of a wait shows."""
SENT: Final = ("responded", "no response")
"""Outcomes of requests that were handled, and whose client got the response that it wants, if any."""


class RequestFilter(NamedTuple):
    """A filter for requests: all fields that are set must match. Made by `checked_filter`."""

    api: str | None
    api_key: int | None
    client_id: str | None
    topic: str | None
    group: str | None
    transactional_id: str | None
    error: str | None
    node: int | None = None

    def matches(self, journal: Journal, entry: Entry) -> bool:
        """Whether a request passes the filter."""
        if self.api_key is not None and entry.api.row.api_key != self.api_key:
            return False
        if self.client_id is not None and entry.client_id != self.client_id:
            return False
        if self.node is not None and entry.node_id != self.node:
            return False
        if self.error is not None and not self._has_error(entry):
            return False
        if self.topic is None and self.group is None and self.transactional_id is None:
            return True
        facts = journal.facts(entry)
        return (
            (self.topic is None or self.topic in facts[TOPIC])
            and (self.group is None or self.group in facts[GROUP])
            and (self.transactional_id is None or self.transactional_id in facts[TRANSACTIONAL_ID])
        )

    def _has_error(self, entry: Entry) -> bool:
        if self.error == NO_ERROR:
            return not entry.errors and entry.outcome in SENT
        return self.error in entry.errors

    @property
    def text(self) -> str:
        """The filter in words: ``OffsetCommit with group 'billing'``."""
        named = [
            f"{name} {value!r}"
            for name, value in zip(self._fields[2:-2], self[2:-2], strict=True)
            if value is not None
        ]
        if self.error not in (None, NO_ERROR):
            named.append(f"error {self.error}")
        return (self.api or "a request") + (f" with {', '.join(named)}" if named else "")


def checked_filter(
    *,
    api: str | None = None,
    client_id: str | None = None,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    error: str | None = None,
) -> RequestFilter:
    """Return the filter. Raises InvalidArgumentError for an API or an error that does not exist."""
    api_key = None
    if api is not None:
        module = api_names()[check_word("api", api, api_names())]
        api_key = next(key for key, row in HANDLERS.items() if row.name == module)
    if error is not None:
        check_word("error", error, ErrorCode.__members__)
    return RequestFilter(api, api_key, client_id, topic, group, transactional_id, error)


async def find_requests(journal: Journal, wanted: RequestFilter, limit: int | None = None) -> list[Request]:
    """Return the requests that pass the filter, the newest last; with ``limit``, at most that many."""
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InvalidArgumentError(f"limit={limit!r}: expected a number of requests, or None for all")
    found: list[Request] = []
    slices = Slices()
    for entry in reversed(list(journal.entries(wanted.api_key))):
        if limit is not None and len(found) >= limit:
            break
        if wanted.matches(journal, entry):
            found.append(journal.request(entry))
        if slices.is_over():
            await slices.pause()
    return found[::-1]


async def wait_for_request(
    journal: Journal, wanted: RequestFilter, *, times: int = 1, after: int = 0, timeout: float = 10
) -> Request:
    """Wait until ``times`` requests that pass the filter are done; return the last of them.

    Earlier ones count, too, except those up to number ``after``. Raises WaitTimeoutError after
    ``timeout`` seconds of real time, InvalidArgumentError.
    """
    check_timeout(timeout)
    if not isinstance(times, int) or times < 1:
        raise InvalidArgumentError(f"times={times!r}: expected a number from 1 on")
    if not journal.is_kept:
        raise InvalidArgumentError("this broker keeps no requests: it was made with requests_kept=0")
    waiter = _RequestWaiter(journal, wanted, times, after)
    journal.listeners[waiter] = None
    try:
        for entry in journal.entries(wanted.api_key):
            if entry.outcome != "pending":
                waiter.on_entry(entry)
        with real_time.move_on_after(timeout):
            await waiter.found.wait()
    finally:
        del journal.listeners[waiter]
    if len(waiter.seen) < times:
        raise WaitTimeoutError(_instead(journal, waiter, timeout))
    return journal.request(waiter.seen[times - 1])


class _RequestWaiter(RequestListener):
    """Collects requests that pass the filter, until there are enough."""

    def __init__(self, journal: Journal, wanted: RequestFilter, times: int, after: int) -> None:
        self.journal = journal
        self.wanted = wanted
        self.times = times
        self.after = after
        self.since = journal.last_number
        """The number of the latest request when the wait began."""
        self.seen: list[Entry] = []
        self.found = trio.Event()

    def on_entry(self, entry: Entry) -> None:
        if entry.number > self.after and self.wanted.matches(self.journal, entry):
            self.seen.append(entry)
            if len(self.seen) >= self.times:
                self.found.set()


def _instead(journal: Journal, waiter: _RequestWaiter, timeout: float) -> str:
    """Return the error text of a wait that timed out: the other requests that came."""
    wanted = waiter.wanted
    times = f" {waiter.times} times" if waiter.times > 1 else ""
    lines = [f"no {wanted.text}{times} in {timeout:g} s; {len(waiter.seen)} came"]
    if times == "":
        lines = [f"no {wanted.text} in {timeout:g} s"]
    if waiter.after:
        lines[0] += f" after request {waiter.after}"
    if wanted.api is not None:
        others = [entry for entry in journal.entries(wanted.api_key) if entry not in waiter.seen]
        if others:
            lines.append(f"other {wanted.api} requests, the newest last:")
            lines += [f"  {journal.request(entry)!r}" for entry in others[-REQUESTS_SHOWN:]]
        else:
            lines.append(f"no other {wanted.api} was sent, either")
    lines.append(f"since the wait began: {recent(journal, waiter.since)}")
    return "\n".join(lines)


def recent(journal: Journal, since: int) -> str:
    """Return in words the requests after number ``since``."""
    counts = Counter(api_name(entry.api.row.name) for entry in journal.entries() if entry.number > since)
    if not counts:
        return "no request came"
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())
