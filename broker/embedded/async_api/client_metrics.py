"""`AsyncClientMetrics`: metrics that clients have sent to a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from oncelog.broker.control.client_metric_types import ClientMetricsPush


class AsyncClientMetrics:
    """The part of `AsyncBroker` for metrics of clients. They send nothing unless the broker has
    ``oncelog.client.metrics.enable=true``, and a subscription says what.
    """

    if TYPE_CHECKING:

        async def _call(self, operation: str, **arguments: Any) -> Any:
            """Call an operation of the broker."""

    async def configure_client_metrics(self, name: str, config: Mapping[str, object]) -> None:
        """Set Kafka's configuration keys of the subscription ``name``, which need not exist yet.

            kafka.configure_client_metrics("all", {"metrics": "org.apache.kafka.producer.", "interval.ms": 100})

        ``metrics`` has the beginnings of the names of metrics, ``*`` for all; ``interval.ms`` is from 100 on, and five
        minutes if it is not set; ``match`` says which clients, such as ``client_id=shop``, by regular expressions. A
        client that is connected already learns of a new subscription when its interval is over.

        Raises InvalidArgumentError for what Kafka refuses, and where clients may send nothing.
        """
        await self._call("configure_client_metrics", name=name, config=dict(config))

    async def client_metrics(
        self, *, client_id: str | None = None, name: str | None = None
    ) -> list[ClientMetricsPush]:
        """Return what clients have sent to the running broker, the newest last.

        name: only pushes that have a metric whose name begins so. The broker keeps 1000 pushes, of 16 MB in all.
        Raises InvalidArgumentError where clients may send nothing.
        """
        found: list[ClientMetricsPush] = await self._call("client_metrics", client_id=client_id, name=name)
        return found

    async def wait_for_client_metrics(
        self,
        *,
        client_id: str | None = None,
        name: str | None = None,
        after: ClientMetricsPush | None = None,
        timeout: float = 10,
    ) -> ClientMetricsPush:
        """Wait until a client has sent metrics; return the first such push. One before the call counts, too.

        name: only a push that has a metric whose name begins so.
        after: only one that came later than this one.
        timeout: seconds of real time; then WaitTimeoutError is raised.
        """
        push: ClientMetricsPush = await self._call(
            "wait_for_client_metrics",
            client_id=client_id,
            name=name,
            after=0 if after is None else after.number,
            timeout=timeout,
        )
        return push
