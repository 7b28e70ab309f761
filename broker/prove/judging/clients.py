"""The clients of a program: who they are, what a mend is called in each, and what each is known for.

A client tells the name and version of its software in ApiVersions from version 3 on (KIP-511). Some ask in an older
version: the client ids that they have by default tell who they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.broker.prove.judging.judge import STUCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oncelog.broker.prove.judging.evidence import Evidence
    from oncelog.broker.prove.judging.judge import Problem
    from oncelog.broker.prove.trials.trial_result import TrialResult

JAVA, LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA = "Java", "librdkafka", "kafka-python", "aiokafka"
FRANZ_GO, SARAMA, KAFKA_GO, KAFKAJS = "franz-go", "Sarama", "kafka-go", "KafkaJS"
_OF_SOFTWARE: Final = (
    (re.compile(r"apache-kafka-java"), JAVA),
    (re.compile(r"librdkafka|rdkafka|confluent-kafka"), LIBRDKAFKA),
    (re.compile(r"kafka-python"), KAFKA_PYTHON),
    (re.compile(r"kgo"), FRANZ_GO),
    (re.compile(r"sarama"), SARAMA),
)
_OF_CLIENT_ID: Final = (
    (re.compile(r"kafkajs"), KAFKAJS),
    (re.compile(r"aiokafka-"), AIOKAFKA),
    (re.compile(r".*\(github\.com/segmentio/kafka-go\)"), KAFKA_GO),
)


class Client(NamedTuple):
    """A client library, as a program uses it."""

    family: str
    """`JAVA`, ...: one for all libraries that are made of it. Empty: it is not known."""
    text: str
    """Its name and version, as it tells them."""


def clients_of(result: TrialResult) -> list[Client]:
    """Return the clients that sent the requests of a trial, in the order in which they came."""
    if result.journal is None:
        return []
    found: dict[Client, None] = {}
    for request in map(result.journal.request, result.journal.entries()):
        if request.api == "ApiVersions" and request.version >= 3 and request.body is not None:
            found[_of_software(request.body.client_software_name, request.body.client_software_version)] = (
                None
            )
        elif family := next(
            (name for pattern, name in _OF_CLIENT_ID if pattern.match(request.client_id)), ""
        ):
            found[Client(family, family)] = None
    return list(found)


def _of_software(name: str, version: str) -> Client:
    family = next((family for pattern, family in _OF_SOFTWARE if pattern.match(name)), "")
    return Client(family, f"{name} {version}")


_ALL_ACKS: Final = {
    FRANZ_GO: "kgo.RequiredAcks(kgo.AllISRAcks())",
    SARAMA: "config.Producer.RequiredAcks = sarama.WaitForAll",
    KAFKA_GO: "RequiredAcks: kafka.RequireAll",
    KAFKAJS: "acks: -1 in send()",
}
_IN_TRANSACTION: Final = {
    JAVA: "sendOffsetsToTransaction(offsets, consumer.groupMetadata())",
    FRANZ_GO: "kgo.NewGroupTransactSession does it",
    SARAMA: "AddMessageToTxn",
    KAFKAJS: "transaction.sendOffsets()",
}
CALLED: Final[Mapping[str, Mapping[str, str]]] = {
    "acks-zero": _ALL_ACKS,
    "acks-one": _ALL_ACKS,
    "auto-commit-in-background": {
        JAVA: "commitSync(offsets) with the offsets of what is done",
        LIBRDKAFKA: "commit(message=..., asynchronous=False), or enable.auto.offset.store=false and store_offsets(...)",
        KAFKA_PYTHON: "enable_auto_commit=False and commit(offsets)",
        AIOKAFKA: "enable_auto_commit=False and commit(offsets)",
        FRANZ_GO: "kgo.AutoCommitMarks() and MarkCommitRecords",
        SARAMA: "MarkMessage after the work",
        KAFKA_GO: "FetchMessage and CommitMessages in place of ReadMessage",
        KAFKAJS: "autoCommit: false and commitOffsets()",
    },
    "new-id-without-group": {
        JAVA: "consumer.groupMetadata()",
        LIBRDKAFKA: "consumer.consumer_group_metadata()",
        KAFKA_PYTHON: "consumer.group_metadata()",
        AIOKAFKA: "it passes no metadata, so only the transactional id can do it",
        KAFKAJS: "it passes no metadata, so only the transactional id can do it",
    },
    "no-flush-at-exit": {
        AIOKAFKA: "await producer.stop()",
        SARAMA: "Close of the producer",
        KAFKA_GO: "Close of the Writer",
        KAFKAJS: "await send(), and disconnect()",
    },
    "offsets-outside-transaction": _IN_TRANSACTION,
    "offset-beyond-the-end": {KAFKAJS: "(BigInt(message.offset) + 1n).toString()"},
    "offset-of-the-record": {
        JAVA: "new OffsetAndMetadata(record.offset() + 1)",
        KAFKAJS: "(BigInt(message.offset) + 1n).toString()",
    },
    "read-uncommitted": {
        KAFKA_PYTHON: 'isolation_level="read_committed"',
        AIOKAFKA: 'isolation_level="read_committed"',
        FRANZ_GO: "kgo.FetchIsolationLevel(kgo.ReadCommitted())",
        SARAMA: "config.Consumer.IsolationLevel = sarama.ReadCommitted",
        KAFKA_GO: "IsolationLevel: kafka.ReadCommitted",
        KAFKAJS: "readUncommitted: false",
    },
    "resends-without-idempotence": {
        LIBRDKAFKA: "with max.in.flight.requests.per.connection=1, or it may lose what is refused (refused-in-flight)",
        KAFKA_PYTHON: "enable_idempotence=True",
        AIOKAFKA: "enable_idempotence=True",
        FRANZ_GO: "no kgo.DisableIdempotentWrite()",
        SARAMA: "config.Producer.Idempotent = true with config.Net.MaxOpenRequests = 1",
        KAFKA_GO: "it has no idempotent producer",
        KAFKAJS: "idempotent: true with maxInFlightRequests: 1",
    },
    "unread-errors": {
        JAVA: "the Future of send(), or its callback",
        LIBRDKAFKA: "on_delivery of produce()",
        KAFKA_PYTHON: "get() of the future that send() returns",
        AIOKAFKA: "await send_and_wait(), or the future of send()",
        FRANZ_GO: "ProduceSync(...).FirstErr(), or the promise of Produce",
        SARAMA: "SyncProducer, or Errors() of an AsyncProducer",
        KAFKA_GO: "the error of WriteMessages, with Async: false",
        KAFKAJS: "await send()",
    },
}
"""By mistake and client: what its mend is called there, where the mend's text does not say it."""


def called(mistake: str, clients: Sequence[Client]) -> str:
    """Return what a mistake's mend is called in a program's clients, to be added to it; empty if nothing is known."""
    names = CALLED.get(mistake, {})
    found = dict.fromkeys(one.family for one in clients if one.family in names)
    return "".join(f"; in {family}: {names[family]}" for family in found)


class _Known(NamedTuple):
    """A fact that a client is known for."""

    family: str
    fits: Callable[[Evidence, Problem], bool]
    text: str


def _is_left_alone(evidence: Evidence, problem: Problem) -> bool:
    """Whether a single node was away, or its connection."""
    result = evidence.result
    is_closed = any(
        "close" in (one.rule.get("drop_request"), one.rule.get("drop_response"))
        for one in result.disturbances
    )
    return problem.kind == STUCK and evidence.plan.nodes == 1 and bool(is_closed or result.broker_ends)


def _has_left_and_stays(evidence: Evidence, problem: Problem) -> bool:
    """Whether the last request of a process that has not ended is that of a member that leaves its group."""
    ended = {(one.instance, one.run) for one in evidence.result.ends} | evidence.result.finished
    last = {(one.instance, one.run): one for one in evidence.events if one.api != "Heartbeat"}
    return problem.kind == STUCK and any(
        one.api == "LeaveGroup" for process, one in last.items() if process not in ended
    )


_KNOWN: Final = (
    _Known(
        LIBRDKAFKA,
        _is_left_alone,
        "librdkafka forgets its only broker while that is away, and may wait for good: with several nodes it has "
        "others; with one, metadata.recovery.strategy=none keeps it",
    ),
    _Known(
        KAFKAJS,
        _has_left_and_stays,
        "KafkaJS ends its consumer at an error that it does not retry, and leaves the process as it is, where no "
        "supervisor sees it: end the process at consumer.events.CRASH",
    ),
)


def known_for(evidence: Evidence, problem: Problem, clients: Sequence[Client]) -> list[str]:
    """Return what is known of a program's clients that may be behind a problem, in sentences."""
    families = {one.family for one in clients}
    return [one.text for one in _KNOWN if one.family in families and one.fits(evidence, problem)]
