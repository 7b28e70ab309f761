"""Requests that clients sent, and clients that were turned away; see `oncelog.broker.control.types`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from oncelog.broker.control.types import Record, Shown, datetime_of
from oncelog.broker.requests.authorization import ANONYMOUS

NAMES_SHOWN = 3
"""How many topics, groups and transactional ids a request's ``repr`` shows."""

Outcome: TypeAlias = Literal["pending", "responded", "no response", "dropped", "closed", "lost"]
"""See `Request.outcome`."""


@dataclass(frozen=True, slots=True, repr=False)
class FailedLogin(Shown):
    """A client that was turned away: its TLS handshake or its log-in failed."""

    number: int
    """Rises with each request that the broker reads, and each client that it turns away."""
    step: Literal["TLS", "SASL"]
    """The step that failed: the handshake (or no rule names the certificate), or the log-in."""
    reason: str
    peer: str
    """The client's address and port."""
    listener: str
    """The name of the listener by which it came."""
    timestamp: int
    """Broker time, in milliseconds."""
    principal: str | None = None
    """The principal that it claimed, as far as it had said."""
    mechanism: str | None = None
    """The SASL mechanism, as far as it had said."""
    node: int | None = None
    """See `Request.node`."""

    @property
    def time(self) -> datetime | None:
        """When it was turned away, in UTC."""
        return datetime_of(self.timestamp)


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A request that a client sent, and its outcome."""

    number: int
    """Rises by one with each request that the broker reads."""
    api: str
    """Kafka's name of the API, such as ``OffsetCommit``."""
    version: int
    client_id: str
    peer: str
    """The client's address and port."""
    listener: str
    """The name of the listener by which it came in."""
    correlation_id: int
    timestamp: int
    """When the broker read it: broker time, in milliseconds."""
    topics: tuple[str, ...]
    """The topics that it names, also where it names them by id. A Fetch names only the topics that its session does not
    have yet; here are also those of which it returned something."""
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    outcome: Outcome
    """``pending``: its response is awaited (a Fetch waits for records). ``responded``: the response left. ``no
    response``: none was asked for (a Produce with acks=0). ``dropped``: an interceptor, such as a fault, dropped it.
    ``closed``: the broker closed the connection instead. ``lost``: the connection ended before."""
    errors: tuple[str, ...]
    """The errors in the response, each once: Kafka's names, such as ``NOT_LEADER_OR_FOLLOWER``."""
    body: Any
    """The decoded request, with Kafka's fields in snake case: ``request.body.topic_data[0].name``."""
    response: Any
    """The decoded response, without the records of a Fetch. None if there is none, or if it has very many rows.
    Secrets in it and in ``body`` are hidden: tokens of log-ins, ``hmac``, ``salted_password``, passwords in configs."""
    principal: str = ANONYMOUS
    """The sender, as ACLs name it. Of a log-in: the principal that the client claims, as far as it has said."""
    mechanism: str | None = None
    """Of a log-in (SaslHandshake, SaslAuthenticate): the SASL mechanism. None for all other requests."""
    node: int | None = None
    """The id of the node that it was sent to, of several; of a proxy, that of the node whose port it came to. None for
    an only node, and for the proxy's own port."""

    @property
    def is_done(self) -> bool:
        """Whether its outcome is final."""
        return self.outcome != "pending"

    @property
    def time(self) -> datetime | None:
        """When the broker read it, in UTC."""
        return datetime_of(self.timestamp)

    @property
    def records(self) -> list[Record]:
        """The records of a Produce; of another request, none. Those that were appended have their offsets.

        Raises ValueError for bytes that are no record batches.
        """
        if self.api != "Produce" or self.body is None:
            return []
        from oncelog.broker.control.records import records_of_request

        return records_of_request(self.body, self.response)

    def __repr__(self) -> str:
        shown = [f"{self.api} v{self.version}", f"client_id={self.client_id!r}"]
        if self.node is not None:
            shown.append(f"node={self.node}")
        for name, values in (
            ("topic", self.topics),
            ("group", self.groups),
            ("transactional_id", self.transactional_ids),
        ):
            if values:
                more = f", ... ({len(values)})" if len(values) > NAMES_SHOWN else ""
                shown.append(f"{name}={', '.join(map(repr, values[:NAMES_SHOWN]))}{more}")
        if self.principal != ANONYMOUS:
            shown.append(f"principal={self.principal!r}")
        if self.mechanism is not None:
            shown.append(f"mechanism={self.mechanism!r}")
        if self.api == "EndTxn" and self.body is not None:
            shown.append("commit" if self.body.committed else "abort")
        shown.append(", ".join(self.errors) or self.outcome)
        return f"<Request {self.number}: {' '.join(shown)}>"
