"""`ClientMetricsManager`: which metrics clients shall send, and what they have sent.

A client asks for its subscription, and pushes its metrics once in an interval. It is known as long as the connection
is open on which it asked first, and it is heard from. Intervals are real time, since clients wait in it.
Source: Kafka's ``ClientMetricsManager``, ``ClientMetricsInstance``; KIP-714.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from oncelog.broker.config.client_metrics_config import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    parse_subscription,
)
from oncelog.broker.metadata.image import CLIENT_METRICS
from oncelog.broker.requests.request import host_of
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.broker.seams.clock import real_time
from oncelog.wire.crc import crc32c
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.schema import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.config.client_metrics_config import Subscription
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.requests.request import RequestContext
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.messages.push_telemetry import PushTelemetryRequest
    from oncelog.wire.schema import Uuid

CODECS = (4, 3, 1, 2)
"""Compression types that clients may use, the best one first: zstd, lz4, gzip, snappy. None of them is 0."""
INSTANCES_MAX = 16_384
"""Client instances that are remembered; one more, and the one that was silent longest is forgotten."""
INSTANCE_MS_MIN = 60_000
"""Milliseconds of silence after which an instance is forgotten, at least; else three intervals."""
PUSHES_MAX = 1000
"""Pushes that are kept; one more, and the oldest is forgotten."""
PUSHED_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of metrics that are kept, decompressed; beyond it the oldest are forgotten."""

_RESERVED = (ZERO_UUID, bytes(15) + b"\x01")


class Push(NamedTuple):
    """Metrics that a client has sent."""

    number: int
    """Rises by one with each."""
    instance_id: str
    facts: dict[str, str]
    """The client's attributes (``CLIENT_FACTS``)."""
    principal: str
    is_terminating: bool
    codec: int
    metrics: bytes
    """``MetricsData`` of OpenTelemetry, decompressed."""
    timestamp: int
    """Broker time, in milliseconds."""


class _Instance:
    """One client."""

    def __init__(self, context: RequestContext, instance_id: Uuid) -> None:
        connection = context.connection
        self.instance_id = instance_id
        self.connection = connection
        self.facts = {
            "client_instance_id": uuid_to_text(instance_id),
            "client_id": context.client_id or "",
            "client_software_name": connection.software[0],
            "client_software_version": connection.software[1],
            "client_source_address": host_of(connection.transport.peer),
            "client_source_port": connection.transport.peer.rpartition(":")[2],
        }
        self.version = -1
        """Of the subscriptions that `metrics` and the rest follow from."""
        self.metrics: list[str] = []
        self.interval_ms = INTERVAL_MS_DEFAULT
        self.subscription_id = 0
        self.heard_s = 0.0
        self.asked_s = self.pushed_s = float("-inf")
        self.followed_s = float("-inf")
        """When its connection has pushed under another id."""
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def follow(self, before: _Instance) -> None:
        """Take over when its connection has pushed under another id, and whether that was the end."""
        self.followed_s = max(before.followed_s, before.pushed_s)
        self.is_terminating = before.is_terminating

    def subscribe(self, concerned: list[Subscription], version: int) -> None:
        """Take over what the subscriptions say that concern it, as a client that has just come."""
        names = {metric for one in concerned for metric in one.metrics}
        self.metrics = [ALL_METRICS] if ALL_METRICS in names else sorted(names)
        self.interval_ms = min([INTERVAL_MS_DEFAULT, *(one.interval_ms for one in concerned)])
        self.subscription_id = subscription_id(self.metrics, self.interval_ms, self.instance_id)
        self.asked_s = self.pushed_s = float("-inf")
        if self.version >= 0:  # else it has just come, perhaps after another id of its connection
            self.is_terminating = False
        self.version = version
        self.last_error = ErrorCode.NONE

    def may_ask(self, now_s: float) -> bool:
        """Take note that it asks; return whether it may."""
        if now_s - max(self.asked_s, self.pushed_s) >= self.interval_ms / 1000:
            self.asked_s = now_s
            return True
        return self.last_error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def may_push(self, now_s: float) -> bool:
        """Take note that it pushes, if it may; return whether it may. The first push after it asked comes early."""
        if now_s - self.followed_s < self.interval_ms / 1000:
            return False
        if self.asked_s > self.pushed_s or now_s - self.pushed_s >= self.interval_ms / 1000:
            self.pushed_s = now_s
            return True
        return False


class ClientMetricsManager:
    """The subscriptions and clients of a node."""

    def __init__(
        self,
        config: DynamicBrokerConfig,
        metadata: ClusterMetadata,
        clock: Clock,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._subscriptions: list[Subscription] | None = None
        self._version = 0
        self._instances: dict[Uuid, _Instance] = {}
        self._by_connection: WeakKeyDictionary[Any, _Instance] = WeakKeyDictionary()
        """The latest client of each connection."""
        self.numbers = count(1)
        """Of the next pushes; the nodes of a test have the same, so that a push is one of them all."""
        self._bytes = 0
        self.pushes: deque[Push] = deque()
        """The kept pushes of clients, the newest last."""
        self.observers: list[Callable[[], None]] = []
        """Told of each push. Must not raise."""

    @property
    def is_enabled(self) -> bool:
        """Whether clients may send metrics."""
        return self._config.static.oncelog_client_metrics_enable

    @property
    def bytes_max(self) -> int:
        """How many bytes a client may push at once."""
        return self._config.static.telemetry_max_bytes

    def on_change(self) -> None:
        """A subscription has changed: it holds for a client's next request."""
        self._subscriptions = None
        self._version += 1

    async def ask(self, context: RequestContext, instance_id: Uuid) -> _Instance:
        """Return a client with its subscription; a zero id: it is new. Raises KafkaError
        (THROTTLING_QUOTA_EXCEEDED).
        """
        if instance_id == ZERO_UUID:
            instance_id = self._metadata.new_uuid()
        instance = await self._find(context, instance_id)
        if not instance.may_ask(real_time.monotonic()):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    async def push(self, context: RequestContext, request: PushTelemetryRequest) -> None:
        """Keep what a client sends. Raises KafkaError for why it is refused."""
        if request.client_instance_id in _RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = await self._find(context, request.client_instance_id)
        try:
            try:
                self._check(instance, request)
            finally:
                instance.is_terminating = request.terminating
            await self._keep(context, instance, request)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        instance.last_error = ErrorCode.NONE

    def _check(self, instance: _Instance, request: PushTelemetryRequest) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(real_time.monotonic()) and not request.terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type != 0 and request.compression_type not in CODECS:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self.bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    async def _keep(
        self, context: RequestContext, instance: _Instance, request: PushTelemetryRequest
    ) -> None:
        if not request.metrics:
            return
        from oncelog.broker.client_metrics.otlp import TooManyError, read_metrics
        from oncelog.wire.compression import decompress

        try:
            metrics = decompress(request.compression_type, request.metrics, self.bytes_max)
            await in_slices(read_metrics(metrics))
        except TooManyError:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE) from None
        except DecodeError:
            raise KafkaError(ErrorCode.INVALID_RECORD) from None
        self.pushes.append(
            Push(
                next(self.numbers),
                instance.facts["client_instance_id"],
                instance.facts,
                context.principal,
                request.terminating,
                request.compression_type,
                metrics,
                self._clock.now_ms(),
            )
        )
        self._bytes += len(metrics)
        while len(self.pushes) > PUSHES_MAX or (self._bytes > PUSHED_BYTES_MAX and len(self.pushes) > 1):
            self._bytes -= len(self.pushes.popleft().metrics)
        for observe in self.observers:
            observe()

    async def _find(self, context: RequestContext, instance_id: Uuid) -> _Instance:
        """Return the client with that id, as new if it is not known any more.

        A connection is one client's: what it has pushed under another id counts for the new one, too.
        """
        now_s = real_time.monotonic()
        instance = self._instances.pop(instance_id, None)
        if instance is None or not instance.connection.is_open or self._is_silent(instance, now_s):
            while len(self._instances) >= INSTANCES_MAX:
                del self._instances[next(iter(self._instances))]
            instance = _Instance(context, instance_id)
            self._forget_closed()
        instance.heard_s = now_s
        self._instances[instance_id] = instance  # the last one
        before = self._by_connection.get(context.connection)
        self._by_connection[context.connection] = instance
        if before is not None and before is not instance:
            instance.follow(before)
        while instance.version != self._version:
            version = self._version
            concerned = await self._concerning(instance.facts)
            if version == self._version:
                instance.subscribe(concerned, version)
        return instance

    @staticmethod
    def _is_silent(instance: _Instance, now_s: float) -> bool:
        return now_s - instance.heard_s >= max(INSTANCE_MS_MIN, 3 * instance.interval_ms) / 1000

    def _forget_closed(self) -> None:
        """Forget the clients that were silent longest, as far as their connections are closed."""
        while self._instances:
            oldest = next(iter(self._instances))
            if self._instances[oldest].connection.is_open:
                return
            del self._instances[oldest]

    async def _concerning(self, facts: Mapping[str, str]) -> list[Subscription]:
        """Return the subscriptions that concern a client with these facts. After a change they are compiled first."""
        slices = Slices()
        compiled, version = self._subscriptions, self._version
        if compiled is None:
            compiled = []
            for (kind, name), texts in list(self._metadata.image.configs.items()):
                if kind == CLIENT_METRICS and texts:
                    with suppress(
                        KafkaError
                    ):  # of a Kafka whose expressions are not ours: it concerns nobody
                        compiled.append(parse_subscription(name, texts))
                if slices.is_over():
                    await slices.pause()
            if version == self._version:
                self._subscriptions = compiled
        found = []
        for one in compiled:
            if one.concerns(facts):
                found.append(one)
            if slices.is_over():
                await slices.pause()
        return found


def subscription_id(metrics: list[str], interval_ms: int, instance_id: Uuid) -> int:
    """Return a number that changes with the subscription (``ClientMetricsManager.computeSubscriptionId``)."""
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    halves = int.from_bytes(instance_id[:8], "big") ^ int.from_bytes(instance_id[8:], "big")
    number = (crc ^ halves >> 32 ^ halves) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number
