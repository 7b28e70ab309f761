"""Routes of requests: the brokers that a `ClusterClient` can send to. It looks up the broker for each attempt."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""


class AnyBroker(NamedTuple):
    """Any broker of the cluster."""


class BrokerWithId(NamedTuple):
    """The broker with this id."""

    node_id: int


class Controller(NamedTuple):
    """The broker that Metadata calls the controller: with KRaft any broker that forwards requests to it."""


class LeaderOf(NamedTuple):
    """The leader of a partition."""

    topic: str
    partition: int


class CoordinatorOf(NamedTuple):
    """The coordinator of a group, or of a transactional id (``key_type``).

    It has a connection of its own, as in Kafka's clients: a heartbeat must not wait behind a Fetch.
    """

    key: str
    key_type: int = GROUP


Route: TypeAlias = AnyBroker | BrokerWithId | Controller | LeaderOf | CoordinatorOf


class Retry(NamedTuple):
    """Repeat a request if the connection is lost, after a time-out, or if all errors of the response are retriable.

    The client repeats the whole request, with pauses that double, until ``timeout_s`` have passed. So a Produce of
    several partitions without a producer id may be written twice.
    """

    timeout_s: float
    backoff_s: float = 0.1
    """Kafka's ``retry.backoff.ms``: the first pause."""
    backoff_max_s: float = 1.0
    """Kafka's ``retry.backoff.max.ms``."""
