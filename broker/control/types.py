"""What operations return: frozen dataclasses of plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BrokerInfo:
    """What identifies a broker, and whether it runs."""

    bootstrap_servers: str
    cluster_id: str
    node_id: int
    seed: int
    """Random ids and delays follow from it: ``Broker(seed=...)`` draws the same ones."""
    is_running: bool
