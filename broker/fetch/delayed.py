"""Delayed fetches: Fetch requests that wait for records (Kafka: ``DelayedFetch``, ``DelayedOperationPurgatory``).

How an append completes one:

1. `PartitionLog` tells its waiters that it grew, among them the delayed fetch (`DelayedFetch.notify`). If that
   satisfies the fetch, it sets the event that the fetch's task waits for, and joins `DelayedFetches.satisfied`.
2. When the connection whose Produce did the append has handled what it read, it calls
   `DelayedFetches.complete_satisfied`. That completes a few fetches at once, as Kafka's appending thread does: it reads
   their records, encodes the responses into their own connections' writers and sends them, which saves a turn of the
   event loop and a task switch. For a fetch of one partition that one small batch satisfies, it does not read the file,
   and makes the response from a template. This is a fast path.
3. The fetch's own task completes it if step 2 did not: too many were satisfied, the wait ended otherwise (time, error,
   deletion, a moved last stable offset), or something is installed in the dispatcher. It also sends responses that
   hold ranges of files, and raises errors of step 2, which concern its connection.

A fetch is completed once: `DelayedFetch._may_complete` says whether step 2 still may do so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.fetch.fetch import INLINE_BYTES_MAX
from oncelog.broker.fetch.sessions import NO_SESSION
from oncelog.broker.fetch.template import Shape
from oncelog.broker.requests.request import Pending
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from oncelog.broker.dispatch.api import Api
    from oncelog.broker.fetch.delayed_fetches import DelayedFetches
    from oncelog.broker.fetch.fetch import Fetch
    from oncelog.broker.fetch.template import ResponseTemplate
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.wire.messages.fetch import FetchResponse


class DelayedFetch(Pending["FetchResponse | None"]):
    """Watches the logs of ``fetch``, which has just been read and was not ready, for up to ``max_wait_ms``.

    That time is the client's, so it is real time, not broker time.
    """

    __slots__ = (
        "_appended",
        "_bytes_missing",
        "_error",
        "_event",
        "_fetch",
        "_fetches",
        "_is_sent",
        "_log_sizes",
        "_may_complete",
        "_template",
    )

    def __init__(self, fetch: Fetch, max_wait_ms: int, fetches: DelayedFetches) -> None:
        super().__init__(self._wait(max_wait_ms))
        self._fetch = fetch
        self._fetches = fetches
        self._may_complete = False
        """Whether the appending connection may complete it: its response is the next one of its connection."""
        self._is_sent = False
        self._error: Exception | None = None
        self._template: ResponseTemplate | None = None
        self._appended: tuple[PartitionLog, int, int, bytes] | None
        """The small batch that alone satisfied a fetch of one partition: its log, the log's end offset after it, its
        base offset, and its bytes.
        """
        self._watch()

    def _watch(self) -> None:
        """Have the logs call `notify` from now on."""
        fetch = self._fetch
        self._appended = None
        self._event = trio.Event()
        self._bytes_missing = fetch.min_bytes - fetch.size
        self._log_sizes = {log: log.size for log in fetch.logs()}
        for log in self._log_sizes:
            log.waiters.add(self)

    def _unwatch(self) -> None:
        for log in self._log_sizes:
            log.waiters.discard(self)

    def notify(self, log: PartitionLog) -> None:
        """A watched log grew or changed otherwise."""
        size = log.size
        grown = size - self._log_sizes[log]
        self._log_sizes[log] = size
        self._bytes_missing -= grown
        if (self._bytes_missing <= 0 or grown <= 0) and not self._event.is_set():
            self._event.set()
            self._fetches.satisfied.append(self)
            appended = log.appended
            if appended is not None and grown <= INLINE_BYTES_MAX and len(self._fetch.rows) == 1:
                self._appended = (log, log.log_end_offset, appended[0], bytes(appended[1]))

    # -- completed by the appending connection

    def on_turn(self) -> None:
        self._may_complete = True
        self._template = self._find_template(self.context.api)

    def _find_template(self, api: Api) -> ResponseTemplate | None:
        """Return the template of the response; None unless it is about one partition, in a version that has one."""
        fetch = self._fetch
        context = fetch.context
        if not api.flexible[fetch.version] or len(fetch.rows) != 1 or context.may_create:
            return None
        _, item, row = fetch.rows[0]
        if row.error_code:
            return None
        session = context.session
        shape = Shape(
            fetch.version,
            NO_SESSION if session is None else session.session_id,
            item.topic,
            item.topic_id,
            row.partition_index,
            fetch.is_committed,
        )
        return self._fetches.templates().get(api, shape)

    def try_complete(self) -> None:
        """Send the response if that is possible now. Raises nothing: the fetch's own task raises an error."""
        # It may have gone on waiting since it was satisfied, and it may have been satisfied twice.
        if not self._may_complete or not self._event.is_set():
            return
        fetch, context = self._fetch, self.context
        writer = context.connection.writer
        try:
            if not (self._take_appended() if self._appended is not None else fetch.read()):
                return
            row = None if self._template is None else fetch.row_for_template()
            if self._template is not None and row is not None:
                self._template.put(context.correlation_id, row, writer.out)
            else:
                context.api.encode_response(
                    context.api_version, context.correlation_id, fetch.respond(), writer.out, writer.ranges
                )
            self._is_sent = True
            self._may_complete = False
        except Exception as error:
            self._error = error
            self._may_complete = False
            writer.discard()  # it holds nothing but this response
            return
        writer.send_now()

    def _take_appended(self) -> bool:
        """Respond with the appended batch, without reading it from the file; return whether the response is ready."""
        assert self._appended is not None
        (log, end_offset, base_offset, records), self._appended = self._appended, None
        if log.log_end_offset != end_offset or log.offline or log.deleted:
            return self._fetch.read()
        return self._fetch.take(log, base_offset, records)

    # -- completed by its own connection

    def close(self) -> None:
        super().close()
        self._unwatch()
        self._fetch.release()

    async def _wait(self, max_wait_ms: int) -> FetchResponse | None:
        fetch = self._fetch
        try:
            with real_time.move_on_after(max_wait_ms / 1000):
                while not fetch.ready:
                    await self._event.wait()
                    if self._is_sent or self._error is not None:
                        break
                    self._unwatch()
                    if not fetch.read():
                        self._watch()
            if self._error is not None:
                raise self._error
            if self._is_sent:
                return None
            if not fetch.ready:  # the time is over: respond with whatever is there now
                fetch.read()
            return fetch.respond()
        except BaseException:
            if not self._is_sent:
                fetch.release()
            raise
        finally:
            self._may_complete = False
            self._unwatch()
