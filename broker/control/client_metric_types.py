"""Metrics that clients have sent, as a test sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from oncelog.broker.control.types import Shown


@dataclass(frozen=True, slots=True, repr=False)
class ClientMetric(Shown):
    """One value of a metric that a client has sent."""

    name: str
    kind: Literal["gauge", "sum", "histogram"]
    value: float
    """Of a histogram: the sum of its values."""
    unit: str = ""
    description: str = ""
    attributes: dict[str, int | float | str | bool] = field(default_factory=dict)
    is_delta: bool = False
    """Whether it counts only what came since the push before it."""
    values: int | None = None
    """Of a histogram: how many values it has."""
    start_ms: int = 0
    """From when on it counts: the client's time, in milliseconds."""
    time_ms: int = 0
    """When it was measured: the client's time, in milliseconds."""


@dataclass(frozen=True, slots=True, repr=False)
class ClientMetricsPush(Shown):
    """Metrics that a client has sent at once (KIP-714)."""

    number: int
    """Rises by one with each."""
    client_id: str
    client_instance_id: str
    """As Kafka writes it: 22 characters of URL-safe base64."""
    software: tuple[str, str]
    """Name and version of the client."""
    peer: str
    """The client's address and port."""
    principal: str
    timestamp: int
    """Broker time, in milliseconds."""
    is_terminating: bool
    """Whether it is the client's last push."""
    compression: str
    """``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``."""
    metrics: tuple[ClientMetric, ...] = field(repr=False)
    labels: dict[str, int | float | str | bool] = field(default_factory=dict, repr=False)
    """What the client says of itself, such as its group and transactional id."""
    data: bytes = field(default=b"", repr=False)
    """``MetricsData`` of OpenTelemetry, decompressed."""

    def metric(self, name: str) -> ClientMetric | None:
        """Return the first metric of that name, None if there is none."""
        return next((one for one in self.metrics if one.name == name), None)
