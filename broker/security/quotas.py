"""`ClientQuotas`: byte rates, share of the loop's time, and changes of topics that users and clients may use.

It is installed in the dispatcher only while the metadata has such quotas, and counts only requests that they concern. A
client that uses more is told for how long it is throttled, and its connection is muted for that time (real time).
Source: Kafka's ``ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``,
``KafkaApis``; KIP-13, KIP-124, KIP-219, KIP-599.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
)
from oncelog.broker.seams.clock import real_time
from oncelog.broker.security.client_limits import UNLIMITED, ClientLimits
from oncelog.broker.security.rates import Rate, TokenBucket
from oncelog.broker.security.usage import MutationQuota, Usage
from oncelog.wire.header import FETCH_KEY, PRODUCE_KEY, SHARE_FETCH_KEY

if TYPE_CHECKING:
    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.requests.request import RequestContext

INT_MAX = 2**31 - 1
BUCKET_IDLE_MS = 3_600_000
"""``INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS``."""
DECISIONS_MAX = 10_000
"""Decisions of `ClientQuotas.concern` that are remembered; one more, and all are forgotten."""
CLIENT_ID_CHARS_MAX = 256
"""Characters of the longest client id that is remembered with a decision."""
EXEMPT = frozenset({27})
"""API keys without a quota of the loop's time: WriteTxnMarkers."""


def time_ms() -> int:
    """Return real time, in milliseconds."""
    return int(real_time.monotonic() * 1000)


class ClientQuotas:
    """The quotas of a node, and their use by clients (a `Quotas` of the dispatcher)."""

    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        samples, self._window_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        self._image = image
        self._fetch_span_s = (samples - 1) * config.quota_window_size_seconds

        def rate() -> Rate:
            return Rate(samples, self._window_ms)

        def bucket() -> TokenBucket:
            return TokenBucket(
                config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
            )

        idle_ms = samples * self._window_ms
        self._produce = ClientLimits(PRODUCER_BYTE_RATE, rate, idle_ms)
        self._fetch = ClientLimits(CONSUMER_BYTE_RATE, rate, idle_ms)
        self._request = ClientLimits(REQUEST_PERCENTAGE, rate, idle_ms)
        self._mutations = ClientLimits(CONTROLLER_MUTATION_RATE, bucket, BUCKET_IDLE_MS)
        self._limits = (self._produce, self._fetch, self._request, self._mutations)
        for limits in self._limits:
            limits.load(image.client_quotas.entities)
        self._concerns: dict[tuple[str, str, int], bool] = {}

    def on_change(self, entity: Entity) -> None:
        """The quotas of an entity have changed in the metadata: it holds for the next request."""
        values = self._image.client_quotas.entities.get(entity, {})
        for limits in self._limits:
            limits.set(entity, values)
        self._concerns.clear()

    def concern(self, principal: str, client_id: str, api_key: int) -> bool:
        """Whether a quota of any kind that counts for the API holds for the client."""
        kind = FETCH_KEY if api_key == SHARE_FETCH_KEY else api_key
        if kind not in (PRODUCE_KEY, FETCH_KEY):
            kind = -1
        key = principal, client_id, kind
        decided = self._concerns.get(key)
        if decided is not None:
            return decided
        user = principal.partition(":")[2]
        other: ClientLimits[Rate] | ClientLimits[TokenBucket] = self._mutations
        if kind != -1:
            other = self._produce if kind == PRODUCE_KEY else self._fetch
        found = self._request.has_limit(user, client_id) or other.has_limit(user, client_id)
        if len(self._concerns) >= DECISIONS_MAX:
            self._concerns.clear()
        if len(client_id) <= CLIENT_ID_CHARS_MAX:
            self._concerns[key] = found
        return found

    def begin(self, context: RequestContext, began: float) -> Usage | None:
        """Return a new `Usage` for the request, None if no quota concerns it. ``began``: when the request began (real
        time, seconds).
        """
        if not self.concern(context.principal, context.client_id or "", context.api.row.api_key):
            return None
        user = context.principal.partition(":")[2]
        size = 0 if context.frame is None else len(context.frame)
        return Usage(self, user, context.client_id, size, began)

    def throttle(self, principal: str, client_id: str | None, context: RequestContext, response: Any) -> int:
        """Count the request and its response. Returns the milliseconds for which the connection is muted then."""
        usage = context.usage
        if usage is None:  # it was read before there were quotas
            return 0
        if usage.fetch_throttle_ms is not None:
            return usage.fetch_throttle_ms
        throttle_ms = 0
        api_key = context.api.row.api_key
        if api_key == PRODUCE_KEY:
            throttle_ms = self._record(self._produce, usage, usage.request_bytes)
        elif usage.mutations is not None:
            throttle_ms = usage.mutations.throttle_ms()
        if response is not None and api_key not in EXEMPT:
            throttle_ms = max(throttle_ms, self._record_time(usage))
        return throttle_ms

    def finish(self, context: RequestContext) -> None:
        """Count the time that was spent on the request since `throttle`; the client's next request may be throttled."""
        usage = context.usage
        if usage is not None and self._request.is_enabled and context.api.row.api_key not in EXEMPT:
            self._record_time(usage)

    def throttle_fetch(self, usage: Usage, size: int) -> int:
        """Count a Fetch whose response would have ``size`` bytes. Returns the milliseconds for which it is throttled.
        If it is, the caller must send an empty response, and the bytes do not count.
        """
        time_throttle_ms = self._record_time(usage)
        throttle_ms = max(time_throttle_ms, self._record(self._fetch, usage, size))
        if throttle_ms:
            self._record(self._fetch, usage, -size)
        usage.fetch_throttle_ms = throttle_ms
        return throttle_ms

    def fetch_bytes_max(self, usage: Usage) -> int:
        """Return the most bytes that one Fetch of the client may have without being throttled."""
        limit = self._fetch.limit(self._fetch.tags(usage.user, usage.client_id))
        return int(min(limit * self._fetch_span_s, INT_MAX)) if limit != UNLIMITED else INT_MAX

    def mutation_quota(self, user: str, client_id: str | None, *, is_strict: bool) -> MutationQuota | None:
        """Return the quota for a request's changes of topics; None: nobody has any."""
        if not self._mutations.is_enabled:
            return None
        bucket, limit = self._mutations.find(user, client_id, time_ms())
        return MutationQuota(bucket, limit, time_ms, is_strict=is_strict)

    def _record_time(self, usage: Usage) -> int:
        if not self._request.is_enabled:
            return 0
        percent = usage.take_busy_s() * 100
        return min(self._record(self._request, usage, percent), self._window_ms)

    @staticmethod
    def _record(limits: ClientLimits[Rate], usage: Usage, value: float) -> int:
        if not limits.is_enabled:
            return 0
        now_ms = time_ms()
        rate, limit = limits.find(usage.user, usage.client_id, now_ms)
        rate.record(value, now_ms)
        return rate.throttle_ms(limit, now_ms)
