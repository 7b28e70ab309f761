"""Brokers at the controller: they register, say by heartbeats what they want, and are fenced if they are silent.

A broker's state follows from its registration in the image (fenced or not) and from its session (whether it is in a
controlled shutdown). A heartbeat moves it on; the first row that holds tells where to (`_NEXT` below is this table):

    FENCED                wants to shut down                                     SHUTDOWN_NOW
                          wants to stay fenced                                   FENCED
                          has read its own registration                          UNFENCED
                          -                                                      FENCED
    UNFENCED              wants to be fenced and to shut down                    SHUTDOWN_NOW
                          wants to be fenced                                     FENCED
                          wants to shut down, and leads a partition              CONTROLLED_SHUTDOWN
                          wants to shut down                                     SHUTDOWN_NOW
                          -                                                      UNFENCED
    CONTROLLED_SHUTDOWN   leads a partition                                      CONTROLLED_SHUTDOWN
                          another that serves has not read of the new leaders    CONTROLLED_SHUTDOWN
                          -                                                      SHUTDOWN_NOW

Why so: a broker serves nobody before it knows its own registration, for until then its image may have leaders of
before its last stop. One that shuts down hands its leaderships over first, and goes on answering until all others know
the new leaders, so clients find one of them. SHUTDOWN_NOW is no state that lasts: the broker is fenced, and told to
stop. A broker that is silent for the session time-out is fenced as well; only its next heartbeat unfences it, as long
as nobody has registered in its place.

A session begins with a registration and ends with that time-out; while it lasts, nobody else may register with the id.
It is soft state: a controller that starts gives each unfenced broker a whole session time-out from then on
(`Sessions.resume`); oncelog's fences all of them at its start. Source: Kafka's ``ClusterControlManager``,
``BrokerHeartbeatManager``, ``BrokerHeartbeatTracker``; KIP-631, KIP-841, KIP-966.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.controller.directories import lose_directories
from oncelog.broker.controller.leadership import (
    begin_controlled_shutdown,
    check_broker_epoch,
    fence,
    forget_last_run,
    leads_any,
    unfence,
)
from oncelog.broker.metadata.image import METADATA_VERSION
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from oncelog.wire.primitives import uuid_to_text
from oncelog.wire.stored.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
    from oncelog.wire.messages.broker_registration import BrokerRegistrationRequest
    from oncelog.wire.schema import Message

CLEAN_SHUTDOWN_VERSION = 3
"""The first version of BrokerRegistration that tells whether the broker stopped cleanly."""
_RESERVED_DIRECTORIES = 100
"""Directory ids below this number have a meaning of their own (``DirectoryId.reserved``)."""
NEVER = float("-inf")
"""The last contact of a broker that was not heard yet, or whose session has ended."""


class BrokerState(Enum):
    """Where a broker stands with the controller (``BrokerControlState``)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


class Session:
    """What the controller remembers of a broker since it registered with ``epoch``.

    ``last_contact_s`` is the broker time of its last heartbeat in seconds, `NEVER` before the first.
    ``metadata_offset`` is how far it has read the metadata log, ``shutdown_offset`` the end of that log when its
    controlled shutdown began, else -1.
    """

    __slots__ = ("epoch", "last_contact_s", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: int, last_contact_s: float = NEVER) -> None:
        self.epoch = epoch
        self.last_contact_s = last_contact_s
        self.metadata_offset = -1
        self.shutdown_offset = -1


class _Facts(NamedTuple):
    """What `_NEXT` asks about a broker and its heartbeat."""

    wants_fence: bool
    wants_shutdown: bool
    has_read_registration: bool
    leads: Callable[[], bool]
    others_are_behind: Callable[[], bool]


_NEXT: dict[BrokerState, tuple[tuple[Callable[[_Facts], bool], BrokerState], ...]] = {
    BrokerState.FENCED: (
        (lambda facts: facts.wants_shutdown, BrokerState.SHUTDOWN_NOW),
        (lambda facts: facts.wants_fence, BrokerState.FENCED),
        (lambda facts: facts.has_read_registration, BrokerState.UNFENCED),
        (lambda facts: True, BrokerState.FENCED),
    ),
    BrokerState.UNFENCED: (
        (lambda facts: facts.wants_fence and facts.wants_shutdown, BrokerState.SHUTDOWN_NOW),
        (lambda facts: facts.wants_fence, BrokerState.FENCED),
        (lambda facts: facts.wants_shutdown and facts.leads(), BrokerState.CONTROLLED_SHUTDOWN),
        (lambda facts: facts.wants_shutdown, BrokerState.SHUTDOWN_NOW),
        (lambda facts: True, BrokerState.UNFENCED),
    ),
    BrokerState.CONTROLLED_SHUTDOWN: (
        (lambda facts: facts.leads(), BrokerState.CONTROLLED_SHUTDOWN),
        (lambda facts: facts.others_are_behind(), BrokerState.CONTROLLED_SHUTDOWN),
        (lambda facts: True, BrokerState.SHUTDOWN_NOW),
    ),
}
"""State -> rows of the table above: what has to hold, and the next state."""

_ON_ENTERING: dict[BrokerState, Callable[[MetadataImage, BrokerConfig, int], list[Message]]] = {
    BrokerState.FENCED: fence,
    BrokerState.SHUTDOWN_NOW: fence,
    BrokerState.UNFENCED: unfence,
    BrokerState.CONTROLLED_SHUTDOWN: begin_controlled_shutdown,
}


class HeartbeatResult(NamedTuple):
    """What a heartbeat comes to: commit the ``records``, then call `Sessions.settle`, then send the response."""

    records: list[Message]
    state: BrokerState
    response: BrokerHeartbeatResponse


class Sessions:
    """The sessions of all registered brokers, by id. ``timeout_s`` is broker.session.timeout.ms in seconds."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._sessions: dict[int, Session] = {}

    def resume(self, image: MetadataImage, now_s: float) -> None:
        """Begin a session for each broker in the image, after a start of the controller."""
        self._sessions = {
            broker_id: Session(broker.broker_epoch, NEVER if broker.fenced else now_s)
            for broker_id, broker in image.brokers.items()
        }

    def replay(self, record: Message) -> None:
        """Follow the metadata: a session begins with a registration that was committed, and goes with it."""
        if isinstance(record, RegisterBrokerRecord):
            self._begin(record.broker_id, record.broker_epoch)
        elif isinstance(record, UnregisterBrokerRecord):
            self._sessions.pop(record.broker_id, None)

    def _begin(self, broker_id: int, epoch: int) -> None:
        """A broker that registers again with its epoch keeps its last contact."""
        known = self._sessions.get(broker_id)
        is_same = known is not None and known.epoch == epoch
        self._sessions[broker_id] = Session(epoch, known.last_contact_s if known and is_same else NEVER)

    def end(self, broker_id: int) -> None:
        """End the session of a broker: it was overdue, and is fenced; or another incarnation is to register at once."""
        if broker_id in self._sessions:
            self._sessions[broker_id].last_contact_s = NEVER

    def is_alive(self, broker_id: int, epoch: int, now_s: float) -> bool:
        """Whether the broker was heard with this epoch, and not longer than a session time-out ago."""
        known = self._sessions.get(broker_id)
        return known is not None and known.epoch == epoch and not self._is_over(known, now_s)

    def overdue(self, now_s: float) -> list[int]:
        """Return the brokers that were silent for longer than the session time-out: `fence` and `end` each.

        Some may be fenced already, as one that has shut down; Kafka fences these once more.
        """
        return [broker_id for broker_id, session in self._heard() if self._is_over(session, now_s)]

    def credit(self, broker_ids: set[int], seconds: float) -> None:
        """A test has moved broker time ahead by ``seconds``: count these brokers as heard meanwhile."""
        for broker_id in broker_ids & self._sessions.keys():
            self._sessions[broker_id].last_contact_s += seconds

    def next_deadline_s(self, heard: Collection[int] = ()) -> float | None:
        """Return the broker time in seconds after which one is overdue if only ``heard`` are heard; None: never."""
        contacts = (session.last_contact_s for broker_id, session in self._heard() if broker_id not in heard)
        return min((contact + self.timeout_s for contact in contacts), default=None)

    def _heard(self) -> Iterator[tuple[int, Session]]:
        return (item for item in self._sessions.items() if item[1].last_contact_s != NEVER)

    def _is_over(self, session: Session, now_s: float) -> bool:
        return session.last_contact_s + self.timeout_s < now_s

    def heartbeat(
        self, image: MetadataImage, config: BrokerConfig, request: BrokerHeartbeatRequest, now_s: float
    ) -> HeartbeatResult:
        """Note that the broker lives, and return what its heartbeat comes to. ``config``: as in `TopicRules.of`.

        Raises KafkaError (STALE_BROKER_EPOCH).
        """
        broker_id = request.broker_id
        check_broker_epoch(image, broker_id, request.broker_epoch)
        session = self._sessions[broker_id]
        session.last_contact_s = now_s
        state = self.state_of(image, broker_id)
        # The epoch is the offset of the first record of the batch that registered it.
        has_read = request.current_metadata_offset >= session.epoch
        facts = _Facts(
            wants_fence=request.want_fence,
            wants_shutdown=request.want_shut_down,
            has_read_registration=has_read,
            leads=lambda: leads_any(image, broker_id),
            others_are_behind=lambda: self._lowest_offset(image) < session.shutdown_offset,
        )
        following = next(next_state for holds, next_state in _NEXT[state] if holds(facts))
        records = [] if following is state else _ON_ENTERING[following](image, config, broker_id)
        records += lose_directories(image, config, broker_id, request.offline_log_dirs)
        records += _cordon(image, request)
        response = BrokerHeartbeatResponse(
            is_caught_up=has_read,
            is_fenced=following.is_fenced,
            should_shut_down=following is BrokerState.SHUTDOWN_NOW,
        )
        return HeartbeatResult(records, following, response)

    def settle(self, request: BrokerHeartbeatRequest, state: BrokerState, last_offset: int) -> None:
        """Note what a heartbeat has come to, once its records are committed; the log ends with ``last_offset``."""
        session = self._sessions[request.broker_id]
        session.metadata_offset = request.current_metadata_offset
        if state is not BrokerState.CONTROLLED_SHUTDOWN:
            session.shutdown_offset = -1
        elif session.shutdown_offset < 0:
            session.shutdown_offset = last_offset

    def state_of(self, image: MetadataImage, broker_id: int) -> BrokerState:
        """Return the state of a registered broker before its next heartbeat."""
        if image.brokers[broker_id].fenced:
            return BrokerState.FENCED
        if self._sessions[broker_id].shutdown_offset >= 0:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.UNFENCED

    def _lowest_offset(self, image: MetadataImage) -> float:
        """Return the metadata offset of the slowest broker that serves; infinity if none does."""
        read = (
            session.metadata_offset
            for broker_id, session in self._sessions.items()
            if self.state_of(image, broker_id) is BrokerState.UNFENCED
        )
        return min(read, default=float("inf"))


def register(
    image: MetadataImage,
    config: BrokerConfig,
    sessions: Sessions,
    request: BrokerRegistrationRequest,
    version: int,
    *,
    cluster_id: str,
    next_offset: int,
    now_s: float,
) -> list[Message]:
    """Return the records that register a broker; the last one is its RegisterBrokerRecord, with the epoch to tell it.

    A new incarnation has the epoch ``next_offset``, the offset of the next record, and is fenced; one that registers
    again keeps its epoch and state. ``config``: as in `TopicRules.of`. Raises KafkaError: INCONSISTENT_CLUSTER_ID,
    DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED (for ZooKeeper's brokers), INVALID_REGISTRATION,
    UNSUPPORTED_VERSION (a finalized feature that the broker does not support).
    """
    broker_id = request.broker_id
    if request.cluster_id != cluster_id:
        text = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    existing = image.brokers.get(broker_id)
    is_same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not is_same and sessions.is_alive(broker_id, existing.broker_epoch, now_s):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        text = "Controller does not support registering ZK brokers."
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
    _check_directories(image, request)
    _check_features(image, request)
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=next_offset,
        end_points=[
            BrokerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners
        ],
        features=[
            BrokerFeature(one.name, one.min_supported_version, one.max_supported_version)
            for one in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=list(request.log_dirs),
    )
    if existing is not None and is_same:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.broker_epoch
        return [record]
    was_clean = (
        version >= CLEAN_SHUTDOWN_VERSION
        and existing is not None
        and existing.broker_epoch == request.previous_broker_epoch
    )
    return [*forget_last_run(image, config, broker_id, was_clean=was_clean), record]


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise _invalid("No directories specified in request")
    if any(int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES for directory in directories):
        raise _invalid("Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise _invalid("Duplicate directory ID in request")
    for other in image.brokers.values():
        for directory in directories:
            if directory in other.log_dirs and other.broker_id != request.broker_id:
                raise _invalid(
                    f"Broker {other.broker_id} is already registered with directory {uuid_to_text(directory)}"
                )


def _check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    """A feature that the broker does not name is one that it has only at level 0."""
    ranges = {one.name: (one.min_supported_version, one.max_supported_version) for one in request.features}
    if METADATA_VERSION not in ranges:
        raise _invalid("Request features do not contain 'metadata.version'")
    for name in dict.fromkeys((*ranges, *image.features)):
        low, high = ranges.get(name, (0, 0))
        level = image.features.get(name, 0)
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {low} and {high}, inclusive.",
            )


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, text)


def _cordon(image: MetadataImage, request: BrokerHeartbeatRequest) -> Iterator[Message]:
    """Yield the record by which other directories than before take no new partitions (KIP-1066)."""
    wanted, known = request.cordoned_log_dirs, image.brokers[request.broker_id].cordoned_log_dirs
    if wanted is not None and (known is None or set(known) != set(wanted)):
        yield BrokerRegistrationChangeRecord(
            request.broker_id, request.broker_epoch, cordoned_log_dirs=list(wanted)
        )
