"""Delayed fetches: Fetch requests that wait for records (Kafka: ``DelayedFetch``, ``DelayedOperationPurgatory``).

How an append completes one:

1. `PartitionLog` tells its waiters, of which the delayed fetch is one, that it grew (`DelayedFetch.notify`). Where
   that satisfies the fetch, its task is woken, and it joins `DelayedFetches.satisfied`.
2. The connection whose Produce did the append looks there when it has handled what it read, and calls
   `DelayedFetches.complete_satisfied`. That completes a few right away, as Kafka's appending thread does: it reads
   their records, encodes the responses into their own connections' writers and sends them, which saves a turn of the
   event loop and a task switch. This is a fast path: one small batch that answers the only partition is not even read
   back from the file, and the response is made from a template.
3. The woken task completes its fetch itself where 2 did not: there were too many, the wait has ended otherwise (time,
   error, deletion, a moved last stable offset), the response holds ranges of files, or something is installed in the
   dispatcher. An error that 2 met is raised here, in the connection that it concerns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from oncelog.broker.fetch.fetch import INLINE_BYTES_MAX
from oncelog.broker.fetch.sessions import NO_SESSION
from oncelog.broker.fetch.template import Shape
from oncelog.broker.request import Pending
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

    That time is the client's own: real time, not broker time.
    """

    __slots__ = (
        "_appended",
        "_error",
        "_event",
        "_fetch",
        "_fetches",
        "_is_sent",
        "_is_turn",
        "_missing",
        "_seen",
        "_template",
    )

    def __init__(self, fetch: Fetch, max_wait_ms: int, fetches: DelayedFetches) -> None:
        super().__init__(self._wait(max_wait_ms))
        self._fetch = fetch
        self._fetches = fetches
        self._is_turn = False
        """Whether the response may be sent as soon as it is there."""
        self._is_sent = False
        self._error: Exception | None = None
        self._template: ResponseTemplate | None = None
        self._appended: tuple[PartitionLog, int, int, bytes] | None
        """The batch that satisfied the fetch of one partition, if it is one small batch: its log, the log's end offset
        then, its base offset, and its bytes."""
        self._watch()

    def _watch(self) -> None:
        """Let `notify` be told of changes from now on."""
        fetch = self._fetch
        self._appended = None
        self._event = trio.Event()
        self._missing = fetch.min_bytes - fetch.size
        self._seen = {log: log.size for log in fetch.logs()}
        for log in self._seen:
            log.waiters.add(self)

    def _unwatch(self) -> None:
        for log in self._seen:
            log.waiters.discard(self)

    def notify(self, log: PartitionLog) -> None:
        """`log`, one of those that are watched, grew or changed otherwise."""
        size = log.size
        grown = size - self._seen[log]
        self._seen[log] = size
        self._missing -= grown
        if (self._missing <= 0 or grown <= 0) and not self._event.is_set():
            self._event.set()
            self._fetches.satisfied.append(self)
            appended = log.appended
            if appended is not None and grown <= INLINE_BYTES_MAX and len(self._fetch.rows) == 1:
                self._appended = (log, log.log_end_offset, appended[0], bytes(appended[1]))

    # -- completed by the appending connection

    def on_turn(self) -> None:
        self._is_turn = True
        self._template = self._find_template(self.context.api)

    def _find_template(self, api: Api) -> ResponseTemplate | None:
        """For the records of the only partition; None where each response is another."""
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
        """Send the response if that is possible now. Raises nothing: an error is left to the task of `wait`."""
        # It may be among the satisfied for a wait that is over, and twice: the end of the next wait adds it again.
        if not self._is_turn or not self._event.is_set():
            return
        fetch, context = self._fetch, self.context
        writer = context.connection.writer
        try:
            if not (self._take_appended() if self._appended is not None else fetch.read()):
                return
            row = None if self._template is None else fetch.respond_in_row()
            if self._template is not None and row is not None:
                self._template.put(context.correlation_id, row, writer.out)
            else:
                context.api.encode_response(
                    context.api_version, context.correlation_id, fetch.respond(), writer.out, writer.ranges
                )
            self._is_sent = True
            self._is_turn = False
        except Exception as error:
            self._error = error
            self._is_turn = False
            writer.discard()  # nothing else was in it: this response is the next one
            return
        writer.send_now()

    def _take_appended(self) -> bool:
        """Take the batch as it was appended, without reading it from the file; whether the response may go out now."""
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
            if not fetch.ready:  # its time is over: whatever is there now
                fetch.read()
            return fetch.respond()
        except BaseException:
            if not self._is_sent:
                fetch.release()
            raise
        finally:
            self._is_turn = False
            self._unwatch()
