"""A cluster of which there is only what its controller decides: an image, sessions, and the time.

Each step is also a line of `script`, for Kafka's own controller (ControllerOracle.java), and what came of it is in
`outcomes`, in the same form as what that says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.controller import leadership
from oncelog.broker.controller.alter_partition import alter_partition
from oncelog.broker.controller.directories import assign_directories
from oncelog.broker.controller.reassignments import ongoing, reassign
from oncelog.broker.controller.registrations import HeartbeatResult, Sessions, register
from oncelog.broker.metadata.configs import dynamic_broker_texts
from oncelog.broker.metadata.image import (
    BROKER,
    ELR_VERSION,
    METADATA_VERSION,
    TOPIC,
    MetadataImage,
    Partition,
)
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from oncelog.wire.messages.alter_partition_reassignments import ReassignablePartition
from oncelog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from oncelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from oncelog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from oncelog.wire.schema import Message, Uuid
from oncelog.wire.stored.metadata import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CONTROLLER_ID = 3000
SESSION_TIMEOUT_S = 9.0
MIN_ISR = "min.insync.replicas"
UNCLEAN_ENABLE = "unclean.leader.election.enable"
FEATURES = {METADATA_VERSION: (30, 33), ELR_VERSION: (0, 1)}
HEARTBEAT_VERSION = 2

Decided = tuple[Sequence[Message], Message | None]
"""Records, and the response if there is one."""


class Outcome(NamedTuple):
    """What a step came to: its error, or its response and records, each as bytes."""

    error: tuple[int, str] | None
    response: bytes | None
    records: tuple[tuple[int, int, bytes], ...]
    """Type, version and bytes of each, sorted: partitions change in any order."""

    def __str__(self) -> str:
        shown = [str(RECORD_TYPES[key].decode(data, version)) for key, version, data in self.records]
        return "\n".join([f"{self.error}, response {self.response!r}", *shown])


def directory_id(broker_id: int, number: int = 0) -> Uuid:
    return bytes([7, broker_id, number]) + bytes(13)


def incarnation_id(number: int) -> Uuid:
    return b"\x09" + number.to_bytes(15, "big")


class DecidedCluster:
    """``elr``: with eligible leader replicas."""

    def __init__(self, *, elr: bool = True) -> None:
        self.image = MetadataImage()
        self.config = BrokerConfig()
        self.sessions = Sessions(SESSION_TIMEOUT_S)
        self.now_s = 0.0
        self.script: list[str] = [f"begin {CLUSTER_ID}"]
        self.outcomes: list[Outcome] = []
        self.incarnations = 0
        self.watch: Callable[[str, Outcome], None] = lambda line, outcome: None
        """Called after each step that was not refused."""
        self.given(FeatureLevelRecord(METADATA_VERSION, 33), FeatureLevelRecord(ELR_VERSION, int(elr)))

    # What is there without a decision.

    def given(self, *records: Message) -> None:
        """Replay records that somebody else decided on."""
        for record in records:
            version = self.image.version_of(record)
            self._note(f"replay {record.API_KEY} {version} {record.encode(version).hex()}", None, [])
            self._replay([record])

    def topic(self, name: str, *assignments: list[int], **configs: str) -> None:
        """Create a topic whose partitions have these replicas, all in sync; ``configs`` with _ for the dots."""
        topic_id = b"\x05" + name.encode().ljust(15, b"\0")
        self.given(TopicRecord(name, topic_id))
        for key, value in configs.items():
            self.given(ConfigRecord(TOPIC, name, key.replace("_", "."), value))
        for index, replicas in enumerate(assignments):
            directories = [
                self.image.brokers[one].log_dirs[0] if one in self.image.brokers else directory_id(one)
                for one in replicas
            ]
            self.given(
                PartitionRecord(
                    index,
                    topic_id,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=directories,
                )
            )

    def given_isr(self, name: str, index: int, isr: list[int]) -> None:
        """Give a partition this ISR."""
        self.given(PartitionChangeRecord(index, self.image.topics[name].topic_id, isr=isr))

    def set_config(self, name: str, key: str, value: str | None) -> None:
        """Set a topic's key, or for the name "" one of all brokers, as AlterConfigs does.

        The records that empty ELRs stand for a ClearElrRecord, which Kafka's own index of ELRs does not follow.
        """
        self.given(ConfigRecord(TOPIC if name else BROKER, name, key, value))
        if key == MIN_ISR:
            for topic in self.image.topics.values():
                for index, state in enumerate(topic.partitions):
                    if name in ("", topic.name) and (state.eligible_leader_replicas or state.last_known_elr):
                        self.given(
                            PartitionChangeRecord(
                                index, topic.topic_id, eligible_leader_replicas=[], last_known_elr=[]
                            )
                        )
        if not name:
            self.config = BrokerConfig().with_changes(dynamic_broker_texts(self.image, CONTROLLER_ID))

    def brokers(self, *broker_ids: int) -> None:
        """Register brokers and let them serve."""
        for broker_id in broker_ids:
            self.register(broker_id)
            self.beat(broker_id)

    # What the controller decides.

    def register(
        self,
        broker_id: int,
        *,
        incarnation: int | None = None,
        previous_epoch: int = -1,
        version: int = 4,
        cluster_id: str = CLUSTER_ID,
        log_dirs: list[Uuid] | None = None,
        features: dict[str, tuple[int, int]] = FEATURES,
        rack: str | None = None,
    ) -> Outcome:
        if incarnation is None:
            self.incarnations += 1
            incarnation = self.incarnations
        request = BrokerRegistrationRequest(
            broker_id,
            cluster_id,
            incarnation_id(incarnation),
            [Listener("PLAINTEXT", "localhost", 9092)],
            [Feature(name, *levels) for name, levels in features.items()],
            rack,
            log_dirs=[directory_id(broker_id)] if log_dirs is None else log_dirs,
            previous_broker_epoch=previous_epoch if version >= 3 else -1,
        )

        def decide() -> tuple[list[Message], None]:
            records = register(
                self.image,
                self.config,
                self.sessions,
                request,
                version,
                cluster_id=CLUSTER_ID,
                next_offset=self.image.offset + 1,
                now_s=self.now_s,
            )
            return records, None

        return self._step(f"register {version} {request.encode(version).hex()}", decide)

    def beat(
        self,
        broker_id: int,
        *,
        epoch: int | None = None,
        offset: int | None = None,
        fence: bool = False,
        shut_down: bool = False,
        offline: list[Uuid] | None = None,
        cordoned: list[Uuid] | None = None,
    ) -> Outcome:
        """A heartbeat, by default with the broker's epoch and having read all metadata."""
        if epoch is None:
            epoch = self.image.brokers[broker_id].broker_epoch
        request = BrokerHeartbeatRequest(
            broker_id,
            epoch,
            self.image.offset if offset is None else offset,
            fence,
            shut_down,
            offline or [],
            cordoned,
        )
        beats: list[HeartbeatResult] = []

        def decide() -> tuple[list[Message], BrokerHeartbeatResponse]:
            beats.append(self.sessions.heartbeat(self.image, self.config, request, self.now_s))
            return beats[0].records, beats[0].response

        outcome = self._step(
            f"heartbeat {HEARTBEAT_VERSION} {request.encode(HEARTBEAT_VERSION).hex()}",
            decide,
            HEARTBEAT_VERSION,
        )
        if beats:
            self.sessions.settle(request, beats[0].state, self.image.offset)
        return outcome

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self._note(f"advance {round(seconds * 1000)}", None, [])

    def fence_overdue(self) -> Outcome:
        def decide() -> tuple[list[Message], None]:
            records: list[Message] = []
            for broker_id in sorted(self.sessions.overdue(self.now_s)):
                made = leadership.fence(self.image, self.config, broker_id)
                self._replay(made)
                self.sessions.end(broker_id)
                records += made
            return records, None

        return self._step("fence_overdue", decide, is_replayed=True)

    def alter_partition(self, request: AlterPartitionRequest, version: int = 3) -> Outcome:
        def decide() -> tuple[list[Message], AlterPartitionResponse]:
            return alter_partition(self.image, self.config, request, version)

        return self._step(f"alter_partition {version} {request.encode(version).hex()}", decide, version)

    def in_sync(self, *isr: int) -> Outcome:
        """The leader of partition 0 of topic t asks for this ISR."""
        state = self.partition()
        brokers = self.image.brokers
        row = PartitionData(
            0,
            state.leader_epoch,
            new_isr_with_epochs=[BrokerState(one, brokers[one].broker_epoch) for one in isr],
            partition_epoch=state.partition_epoch,
        )
        topic = TopicData(self.image.topics["t"].topic_id, [row])
        leader = brokers[state.leader]
        return self.alter_partition(AlterPartitionRequest(leader.broker_id, leader.broker_epoch, [topic]))

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> Outcome:
        return self._step(
            f"assign 0 {request.encode(0).hex()}",
            lambda: assign_directories(self.image, self.config, request),
        )

    def unregister(self, broker_id: int) -> Outcome:
        return self._step(
            f"unregister {broker_id}",
            lambda: (leadership.unregister(self.image, self.config, broker_id), None),
        )

    def balance(self) -> Outcome:
        return self._step("balance", lambda: (leadership.balance(self.image, self.config), None))

    def elect_unclean(self) -> Outcome:
        return self._step("elect_unclean", lambda: (leadership.elect_unclean(self.image, self.config), None))

    def elect(self, name: str, index: int, election_type: int) -> Outcome:
        """Raises nothing: what Kafka tells in a row of the response is the outcome's error."""

        def decide() -> tuple[list[Message], None]:
            return [leadership.elect(self.image, self.config, name, index, election_type)], None

        return self._step(f"elect {name} {index} {election_type}", decide)

    def reassign(
        self, name: str, index: int, replicas: list[int] | None, *, may_change_count: bool = True
    ) -> Outcome:
        def decide() -> tuple[list[Message], None]:
            made = reassign(
                self.image,
                self.config,
                name,
                ReassignablePartition(index, replicas),
                may_change_count=may_change_count,
            )
            return [] if made is None else [made], None

        shown = "-" if replicas is None else ",".join(map(str, replicas)) or "none"
        return self._step(f"reassign {name} {index} {shown} {int(may_change_count)}", decide)

    def reassignments(self) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
        return {
            (topic.name, row.partition_index): (row.replicas, row.adding_replicas, row.removing_replicas)
            for topic in self.image.topics.values()
            for row in ongoing(topic, range(len(topic.partitions))).partitions
        }

    # What there is.

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        return self.image.topics[name].partitions[index]

    def serving(self) -> list[int]:
        return [
            one.broker_id
            for one in self.image.brokers.values()
            if not one.fenced and not one.in_controlled_shutdown
        ]

    def _step(
        self, line: str, decide: Callable[[], Decided], version: int = 0, *, is_replayed: bool = False
    ) -> Outcome:
        try:
            records, response = decide()
        except KafkaError as error:
            outcome = Outcome((int(error.code), error.message or ""), None, ())
            self.script.append(line)
            self.outcomes.append(outcome)
            return outcome
        outcome = self._note(line, None if response is None else response.encode(version), records)
        if not is_replayed:
            self._replay(records)
        self.watch(line, outcome)
        return outcome

    def _note(self, line: str, response: bytes | None, records: Sequence[Message]) -> Outcome:
        versions = [(record, self.image.version_of(record)) for record in records]
        outcome = Outcome(
            None,
            response,
            tuple(sorted((record.API_KEY, version, record.encode(version)) for record, version in versions)),
        )
        self.script.append(line)
        self.outcomes.append(outcome)
        return outcome

    def _replay(self, records: Sequence[Message]) -> None:
        for record in records:
            # The image keeps the records of brokers and changes them: no others may have them.
            version = self.image.version_of(record)
            copy = type(record).decode(record.encode(version), version)
            self.image.replay(copy)
            self.image.offset += 1
            self.sessions.replay(record)


def fenced(outcome: Outcome) -> list[int]:
    """The brokers that a step fenced."""
    changes = [
        BrokerRegistrationChangeRecord.decode(data, version)
        for key, version, data in outcome.records
        if key == BrokerRegistrationChangeRecord.API_KEY
    ]
    return [change.broker_id for change in changes if change.fenced == 1]
