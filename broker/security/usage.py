"""`Usage`: what one request uses of the quotas of its client; `MutationQuota`: changes of topics.

Source: Kafka's ``RequestHandlerHelper``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from oncelog.broker.security.quotas import ClientQuotas
    from oncelog.broker.security.rates import TokenBucket


class Usage:
    """One request: the time that the loop spends on it (real time, seconds), and what else counts."""

    __slots__ = (
        "_busy_s",
        "_recorded_s",
        "_running_since",
        "client_id",
        "fetch_throttle_ms",
        "mutations",
        "quotas",
        "request_bytes",
        "user",
    )

    def __init__(
        self, quotas: ClientQuotas, user: str, client_id: str | None, request_bytes: int, began: float
    ) -> None:
        self.quotas = quotas
        self.user = user
        self.client_id = client_id
        self.request_bytes = request_bytes
        self.fetch_throttle_ms: int | None = None
        """Milliseconds for which a Fetch is throttled, once that is decided."""
        self.mutations: MutationQuota | None = None
        """The quota of the request's changes of topics."""
        self._busy_s = real_time.monotonic() - began
        self._running_since: float | None = None
        self._recorded_s = 0.0

    def take_busy_s(self) -> float:
        """Return the seconds that the loop has spent on the request since the last call."""
        busy = self._busy_s
        if self._running_since is not None:
            busy += real_time.monotonic() - self._running_since
        taken, self._recorded_s = busy - self._recorded_s, busy
        return taken

    @types.coroutine
    def measured(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Await ``work``, and count the time of its steps, but not of its waits."""
        step: Callable[[Any], Any] = work.send
        argument: Any = None
        while True:
            self._running_since = real_time.monotonic()
            try:
                waits_for = step(argument)
            except StopIteration as end:
                return end.value
            finally:
                self._busy_s += real_time.monotonic() - self._running_since
                self._running_since = None
            try:
                argument = yield waits_for
                step = work.send
            except BaseException as error:
                argument, step = error, work.throw

    def mutation_quota(self, *, is_strict: bool) -> MutationQuota | None:
        """Return the quota for changes of topics by this request; None: there is none."""
        self.mutations = self.quotas.mutation_quota(self.user, self.client_id, is_strict=is_strict)
        return self.mutations

    def auto_creation_quota(self) -> MutationQuota | None:
        """Return the quota for topics that Metadata creates: it may refuse them, but does not throttle the client."""
        return self.quotas.mutation_quota(self.user, self.client_id, is_strict=True)


class MutationQuota:
    """Counts partitions that are created and deleted. A strict one refuses them while it is exhausted."""

    __slots__ = ("_bucket", "_is_strict", "_limit", "_throttle_ms", "_throttled_at_ms", "_time_ms")

    def __init__(
        self, bucket: TokenBucket, limit: float, time_ms: Callable[[], int], *, is_strict: bool
    ) -> None:
        self._bucket = bucket
        self._limit = limit
        self._time_ms = time_ms
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._throttled_at_ms = 0

    def record(self, partitions: int) -> None:
        """Count them. Raises KafkaError (THROTTLING_QUOTA_EXCEEDED) in place of that if the quota is strict and
        exhausted.
        """
        now_ms = self._time_ms()
        if not self._is_strict:
            self._bucket.record(partitions, self._limit, now_ms)
        throttle_ms = self._bucket.throttle_ms(self._limit, now_ms)
        if throttle_ms:
            self._throttle_ms, self._throttled_at_ms = throttle_ms, now_ms
        if self._is_strict:
            if throttle_ms:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            self._bucket.record(partitions, self._limit, now_ms)

    def correct(self, partitions: int) -> None:
        """Count so many more, or fewer, than `record` was told."""
        self._bucket.record(partitions, self._limit, self._time_ms())

    def throttle_ms(self) -> int:
        """Return the milliseconds that the client still has to wait."""
        if not self._throttle_ms:
            return 0
        return max(0, self._throttle_ms - (self._time_ms() - self._throttled_at_ms))
