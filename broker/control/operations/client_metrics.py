"""Operations: metrics that clients have sent (KIP-714), and waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from oncelog.broker.client_metrics.otlp import read_metrics
from oncelog.broker.control.changes import check_timeout, wait_until
from oncelog.broker.control.client_metric_types import ClientMetric, ClientMetricsPush
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.metadata.image import CLIENT_METRICS
from oncelog.broker.scheduling.slices import Slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.client_metrics.manager import Push
    from oncelog.broker.client_metrics.otlp import Point
    from oncelog.broker.control.journal import Journal
    from oncelog.broker.node.node import Node

CLIENTS_SHOWN = 10
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class WithClientMetrics(Protocol):
    """A `ControlledBroker` or a `ControlledCluster`, to which clients send metrics."""

    journal: Journal

    @property
    def serving(self) -> Sequence[Node]:
        """The nodes that serve. Raises NotRunningError."""


async def client_metrics(
    broker: WithClientMetrics, *, client_id: str | None = None, name: str | None = None
) -> list[ClientMetricsPush]:
    """Return the pushes of clients to the running broker, the newest last. ``name``: only pushes that have a metric
    whose name begins so. Raises InvalidArgumentError where clients may send nothing.
    """
    nodes = nodes_with_client_metrics(broker)
    shown = [await _shown(push, client_id, name) for push in _pushes(nodes)]
    return [push for push in shown if push is not None]


async def wait_for_client_metrics(
    broker: WithClientMetrics,
    *,
    client_id: str | None = None,
    name: str | None = None,
    after: int = 0,
    timeout: float = 10,
) -> ClientMetricsPush:
    """Wait until a client has sent metrics; return the first such push after number ``after``.

    Raises WaitTimeoutError after ``timeout`` seconds of real time, InvalidArgumentError.
    """
    check_timeout(timeout)
    nodes = nodes_with_client_metrics(broker)
    note = broker.journal.changes.note
    for node in nodes:
        node.client_metrics.observers.append(note)

    async def check() -> ClientMetricsPush | None:
        nonlocal after
        for push in _pushes(broker.serving):
            if push.number > after:
                shown = await _shown(push, client_id, name)
                if shown is not None:
                    return shown
                after = push.number  # it need not be read again
        return None

    async def explain() -> str:
        pushes = _pushes(broker.serving)
        clients = sorted({push.facts["client_id"] for push in pushes})
        by = f", by {', '.join(clients[:CLIENTS_SHOWN])}" if clients else ""
        if not any(kind == CLIENT_METRICS for kind, _ in nodes[0].metadata.image.configs):
            by += "; there is no subscription, so no client sends any (configure_client_metrics makes one)"
        return f"no such metrics of a client in {timeout:g} s; clients have pushed {len(pushes)} times{by}"

    try:
        return await wait_until(broker.journal.changes, check, lambda: (), timeout, explain)
    finally:
        for node in nodes:
            node.client_metrics.observers.remove(note)


def nodes_with_client_metrics(broker: WithClientMetrics) -> Sequence[Node]:
    """Return the nodes that serve. Raises InvalidArgumentError where clients may send nothing."""
    nodes = broker.serving
    if not all(node.client_metrics.is_enabled for node in nodes):
        raise InvalidArgumentError(
            "clients may not send metrics to this broker: set oncelog.client.metrics.enable=true"
        )
    return nodes


def _pushes(nodes: Sequence[Node]) -> list[Push]:
    """Return the pushes to all nodes, in their order."""
    return sorted(
        (push for node in nodes for push in node.client_metrics.pushes), key=lambda push: push.number
    )


async def _shown(push: Push, client_id: str | None, name: str | None) -> ClientMetricsPush | None:
    """Return a push as it is shown, None for another client's, or one without such a metric. It is read again, in
    slices: values take many times the memory of its bytes.
    """
    if client_id not in (None, push.facts["client_id"]):
        return None
    points: list[Point] = []
    slices = Slices()
    for point in read_metrics(push.metrics):
        if point is not None:
            points.append(point)
        if slices.is_over():
            await slices.pause()
    if name is not None and not any(point.name.startswith(name) for point in points):
        return None
    return ClientMetricsPush(
        number=push.number,
        client_id=push.facts["client_id"],
        client_instance_id=push.instance_id,
        software=(push.facts["client_software_name"], push.facts["client_software_version"]),
        peer=f"{push.facts['client_source_address']}:{push.facts['client_source_port']}",
        principal=push.principal,
        timestamp=push.timestamp,
        is_terminating=push.is_terminating,
        compression=CODECS[push.codec],
        metrics=tuple(
            ClientMetric(
                name=point.name,
                kind=cast("Any", point.kind),
                value=point.value,
                unit=point.unit,
                description=point.description,
                attributes=point.attributes,
                is_delta=point.is_delta,
                values=point.values,
                start_ms=point.start_ms,
                time_ms=point.time_ms,
            )
            for point in points
        ),
        labels=points[0].resource if points else {},
        data=push.metrics,
    )
