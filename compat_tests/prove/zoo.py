"""The zoo: programs of which is known what `oncelog prove` must say, and why.

`ZOO` has one row for each. A mutant is a right program in which one line that matters is another one: it is made of the
text of the right one, which must have the line.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compat_tests.prove import languages, mends
from compat_tests.prove.places import HERE, PROGRAMS
from oncelog.broker.prove.plan import NODES

SHORTENS_A_TRIAL = "shortens a trial"
"""The comment on a line that makes a trial short: the program is as right, or as wrong, without it."""
ORDERS = HERE / "orders.jsonl"
ORDERS_WITH_A_BAD_ONE = HERE / "orders_with_a_bad_one.jsonl"
RECEIPTS = {"orders": 1, "receipts": 1}

EXACTLY_ONCE = "exactly once"
AT_LEAST_ONCE = "at least once"
AT_MOST_ONCE = "at most once"
LOST_AND_DOUBLED = "lost and doubled"
REORDERED = "reordered"
READ_ABORTED = "read what was aborted"
STUCK = "stuck"


@dataclass(frozen=True)
class Failure:
    """A trial that must fail: what is disturbed, at which API, and what is wrong then."""

    disturbance: str
    """One of the prover's kinds, such as "kill before"; "" if it fails undisturbed."""
    api: str
    """Whose request is the step; for a broker that dies, the write; "" if it fails undisturbed."""
    problem: str
    mistake: str | None
    """The section of docs/how-to/mistakes.md that explains it."""


@dataclass(frozen=True)
class Member:
    """A program of the zoo."""

    name: str
    verdict: str
    program: str = ""
    """The file in programs/, or the folder of one in Go; by default a Python file that is named as the program."""
    failures: tuple[Failure, ...] = ()
    promise: str = "exactly-once"
    instances: int = 1
    nodes: int = NODES
    arguments: tuple[str, ...] = ()
    topics: Mapping[str, int] = field(default_factory=lambda: RECEIPTS)
    outputs: tuple[str, ...] = ("receipts",)
    orders: pathlib.Path = ORDERS
    options: tuple[str, ...] = ()
    shows_database: bool = False
    """Whether its results are in a database, and not in Kafka: `--check` shows them."""
    late: bool = False
    """Whether a transaction that nobody ends lets readers wait."""
    line: tuple[str, str] = ("", "")
    """Of a mutant: the line of the right program, and what stands there instead."""
    defaults: bool = False
    """Whether lines that only shorten a trial are left out, so that the client has its defaults."""
    mend: mends.Block | None = None
    """Of a wrong program that is mended: the block of docs/how-to/mistakes.md that does it."""

    @property
    def file(self) -> pathlib.Path:
        """Where its text is."""
        return PROGRAMS / (self.program or f"{self.name}.py")

    @property
    def language(self) -> str:
        """What runs it: a key of `languages.MAKERS`."""
        return languages.language_of(self.file)

    def text(self) -> str:
        """Its text, with the mutant's line, or mended."""
        if self.mend is not None:
            return self.mend.mended()
        source = self.file / "main.go" if self.file.is_dir() else self.file
        text = source.read_text()
        right, wrong = self.line
        if right:
            assert text.count(right) == 1, f"{self.file.name} must have this once: {right}"
            text = text.replace(right, wrong)
        return self._as_configured(text)

    def _as_configured(self, text: str) -> str:
        if not self.defaults:
            return text
        return "".join(line for line in text.splitlines(True) if SHORTENS_A_TRIAL not in line)

    def command(self, folder: pathlib.Path) -> list[str]:
        """Make what runs it in `folder`; returns its command line. Raises RealPartMissing."""
        made = folder / self.name
        if not made.exists():
            made.mkdir()
            if self.file.is_dir():
                shutil.copytree(self.file, made, dirs_exist_ok=True)
                (made / "main.go").write_text(self.text())
            else:
                for shared in PROGRAMS.glob("*.py"):
                    (made / shared.name).write_text(self._as_configured(shared.read_text()))
                (made / self.file.name).write_text(self.text())
        return [*languages.MAKERS[self.language](made, self.file.name), *self.arguments]

    def proof(self, folder: pathlib.Path, *more: str) -> list[str]:
        """The command line of `oncelog prove` for it. Raises RealPartMissing."""
        words = [sys.executable, "-m", "oncelog", "prove", "--promise", self.promise]
        for name, partitions in self.topics.items():
            words += ["--topic", f"{name}:{partitions}"]
        words += ["--input", f"orders={self.orders}", "--instances", str(self.instances)]
        words += ["--nodes", str(self.nodes)]
        for output in self.outputs:
            words += ["--output", output]
        if self.shows_database:
            words += ["--check", '"$ZOO_PYTHON" "$ZOO_PROGRAMS/show_receipts.py"']
        return [*words, *self.options, *more, "--", *self.command(folder)]


def _lost(disturbance: str, api: str, mistake: str) -> Failure:
    return Failure(disturbance, api, "lost", mistake)


def _doubled(disturbance: str, api: str, mistake: str) -> Failure:
    return Failure(disturbance, api, "doubled", mistake)


RIGHT = (
    Member("confluent_transactions", EXACTLY_ONCE),
    Member("confluent_defaults", EXACTLY_ONCE),
    Member("confluent_with_one_node", EXACTLY_ONCE, "confluent_transactions.py", nodes=1),
    Member("java_with_one_node", EXACTLY_ONCE, "JavaTransactions.java", nodes=1),
    Member("kafka_python_transactions", EXACTLY_ONCE),
    Member("java_transactions", EXACTLY_ONCE, "JavaTransactions.java"),
    Member("franz_go_transactions", EXACTLY_ONCE, "go"),
    Member("streams_exactly_once", EXACTLY_ONCE, "StreamsExactlyOnce.java", arguments=("{dir}",)),
    Member("quix_exactly_once", EXACTLY_ONCE, late=True),
    # A run takes half a minute: a part of its 361 classes of steps has to do.
    Member(
        "spark_write_once",
        EXACTLY_ONCE,
        options=("--until-exit", "--timeout", "300", "--budget", "12"),
    ),
    Member("sqlite_upsert", EXACTLY_ONCE, topics={"orders": 1}, outputs=(), shows_database=True),
    Member("offsets_with_results", EXACTLY_ONCE, topics={"orders": 1}, outputs=(), shows_database=True),
    Member(
        "share_worker",
        AT_LEAST_ONCE,
        promise="at-least-once",
        failures=(_doubled("kill after", "Produce", "two-writes"),),
    ),
    Member(
        "at_least_once",
        AT_LEAST_ONCE,
        promise="at-least-once",
        failures=(_doubled("kill after", "Produce", "two-writes"),),
    ),
    Member(
        "outbox",
        AT_LEAST_ONCE,
        promise="at-least-once",
        failures=(_doubled("kill after", "Produce", "two-writes"),),
    ),
    Member("aiokafka_alone", EXACTLY_ONCE, "aiokafka_transactions.py", arguments=("billing",)),
    Member("kafkajs_alone", EXACTLY_ONCE, "kafkajs_transactions.mjs", arguments=("billing",)),
    Member(
        "aiokafka_defaults", EXACTLY_ONCE, "aiokafka_transactions.py", arguments=("billing",), defaults=True
    ),
    Member("franz_go_defaults", EXACTLY_ONCE, "go", defaults=True),
    Member("java_defaults", EXACTLY_ONCE, "JavaTransactions.java", defaults=True),
    Member("kafka_go_defaults", AT_LEAST_ONCE, "kafka_go", promise="at-least-once"),
    Member(
        "kafkajs_defaults", EXACTLY_ONCE, "kafkajs_transactions.mjs", arguments=("billing",), defaults=True
    ),
    Member("kafka_python_defaults", EXACTLY_ONCE, "kafka_python_transactions.py", defaults=True),
    Member("sarama_defaults", AT_LEAST_ONCE, "sarama", promise="at-least-once"),
    Member("streams_defaults", EXACTLY_ONCE, "StreamsExactlyOnce.java", arguments=("{dir}",), defaults=True),
)
"""Those that keep their promise. `share_worker` and `at_least_once` promise no more than at least once."""

IN_TWOS = tuple(
    Member(
        name,
        AT_LEAST_ONCE,
        program,
        failures=(_doubled("zombie before", "TxnOffsetCommit", "new-id-without-group"),),
        arguments=("billing-{instance}",),
    )
    for name, program in (
        ("aiokafka_in_twos", "aiokafka_transactions.py"),
        ("kafkajs_in_twos", "kafkajs_transactions.mjs"),
    )
)
"""Those that are right alone."""

WRONG = (
    Member(
        "offsets_before_work",
        AT_MOST_ONCE,
        failures=(_lost("kill after", "OffsetCommit", "offsets-before-work"),),
    ),
    Member(
        "auto_commit_in_background",
        LOST_AND_DOUBLED,
        failures=(_lost("kill before", "Produce", "auto-commit-in-background"),),
    ),
    Member(
        "offsets_outside_transaction",
        AT_LEAST_ONCE,
        failures=(_doubled("kill after", "EndTxn", "offsets-outside-transaction"),),
    ),
    Member(
        "offset_of_the_record",
        AT_LEAST_ONCE,
        failures=(_doubled("kill before", "AddOffsetsToTxn", "offset-of-the-record"),),
    ),
    Member(
        "new_id_without_group",
        AT_LEAST_ONCE,
        failures=(_doubled("zombie before", "TxnOffsetCommit", "new-id-without-group"),),
    ),
    Member(
        "java_new_id",
        AT_LEAST_ONCE,
        "JavaNewId.java",
        failures=(_doubled("zombie before", "TxnOffsetCommit", "new-id-without-group"),),
    ),
    Member(
        "one_id_for_two",
        STUCK,
        instances=2,
        topics={"orders": 2, "receipts": 1},
        failures=(Failure("", "", STUCK, "one-id-for-two"),),
    ),
    Member(
        "unread_errors",
        LOST_AND_DOUBLED,
        failures=(_lost("refuse for good", "Produce", "unread-errors"),),
    ),
    Member(
        "no_flush_at_exit",
        LOST_AND_DOUBLED,
        failures=(_lost("terminate", "Fetch", "no-flush-at-exit"),),
    ),
    Member(
        "offset_before_id",
        AT_LEAST_ONCE,
        failures=(_doubled("zombie before", "InitProducerId", "offset-before-id"),),
    ),
    Member(
        "commit_ahead",
        LOST_AND_DOUBLED,
        failures=(_lost("kill before", "Produce", "auto-commit-in-background"),),
    ),
    Member(
        "commit_at_sigterm",
        LOST_AND_DOUBLED,
        failures=(_lost("terminate", "Produce", "no-flush-at-exit"),),
    ),
    Member(
        "acks_zero",
        LOST_AND_DOUBLED,
        failures=(_lost("kill before", "Produce", "acks-zero"),),
    ),
    Member(
        "acks_one",
        LOST_AND_DOUBLED,
        failures=(_lost("leader is lost", "Produce", "acks-one"),),
    ),
    Member(
        "resends_without_idempotence",
        AT_LEAST_ONCE,
        failures=(
            _doubled("lose response", "Produce", "resends-without-idempotence"),
            Failure("refuse", "Produce", REORDERED, "resends-without-idempotence"),
        ),
    ),
    Member(
        "refused_in_flight",
        LOST_AND_DOUBLED,
        failures=(_lost("refuse", "Produce", "refused-in-flight"),),
    ),
    Member(
        "abort_without_rewind",
        AT_MOST_ONCE,
        failures=(_lost("refuse for good", "Produce", "abort-without-rewind"),),
    ),
    Member(
        "read_uncommitted",
        READ_ABORTED,
        topics={"orders": 1, "priced": 1, "receipts": 1},
        failures=(Failure("kill after", "Produce", READ_ABORTED, "read-uncommitted"),),
    ),
    Member(
        "commit_in_revoke",
        LOST_AND_DOUBLED,
        options=("--quiet", "1.2"),  # it waits for a second before it does what it has
        failures=(_lost("join", "Fetch", "commit-in-revoke"),),
    ),
    Member(
        "dedup_in_memory",
        AT_LEAST_ONCE,
        failures=(_doubled("kill after", "Produce", "two-writes"),),
    ),
    Member(
        "dead_letter_outside",
        AT_LEAST_ONCE,
        topics={"orders": 1, "receipts": 1, "dead-letters": 1},
        outputs=("receipts", "dead-letters"),
        orders=ORDERS_WITH_A_BAD_ONE,
        failures=(_doubled("kill after", "Produce", "outside-transaction"),),
    ),
    Member(
        "faust_exactly_once",
        LOST_AND_DOUBLED,
        arguments=("worker", "-l", "error"),
        failures=(_doubled("kill after", "Produce", "outside-transaction"),),
    ),
)
"""A classic mistake each."""

MUTANTS = (
    Member(
        "kafka_go_read_message",
        LOST_AND_DOUBLED,
        "kafka_go",
        promise="at-least-once",
        line=("reader.FetchMessage(stopped)", "reader.ReadMessage(stopped)"),
        failures=(_lost("kill before", "Produce", "offsets-before-work"),),
    ),
    Member(
        "kafka_go_without_acks",
        LOST_AND_DOUBLED,
        "kafka_go",
        promise="at-least-once",
        line=("RequiredAcks: kafka.RequireAll,", "RequiredAcks: kafka.RequireNone,"),
        failures=(_lost("kill before", "Produce", "acks-zero"),),
    ),
    Member(
        "kafkajs_without_keys",
        LOST_AND_DOUBLED,
        "kafkajs_transactions.mjs",
        arguments=("billing", "1"),
        topics={"orders": 1, "receipts": 2},
        line=("({ key, value }) => ({ key, value:", "({ value }) => ({ value:"),
        failures=(_lost("lose response", "Produce", "sent-to-another-partition"),),
    ),
    Member(
        "kafkajs_offset_as_text",
        AT_LEAST_ONCE,
        "kafkajs_transactions.mjs",
        arguments=("billing",),
        line=("(BigInt(orders.at(-1).offset) + 1n).toString()", "orders.at(-1).offset + 1"),
        failures=(_doubled("kill after", "EndTxn", "offset-beyond-the-end"),),
    ),
    Member(
        "confluent_without_rewind",
        AT_MOST_ONCE,
        "confluent_transactions.py",
        line=("            consumer.seek(partition)\n", "            pass\n"),
        failures=(_lost("refuse for good", "Produce", "abort-without-rewind"),),
    ),
    Member(
        "confluent_without_offsets",
        AT_LEAST_ONCE,
        "confluent_transactions.py",
        line=("        producer.send_offsets_to_transaction(positions, member[0], 10)\n", ""),
        failures=(_doubled("kill after", "EndTxn", "two-writes"),),
    ),
    Member(
        "offsets_with_results_unread",
        STUCK,
        "offsets_with_results.py",
        topics={"orders": 1},
        outputs=(),
        shows_database=True,
        line=("        (one.offset,) = ", "        _ = "),
        failures=(Failure("terminate", "Fetch", STUCK, None),),
    ),
    Member(
        "kafka_python_without_metadata",
        AT_LEAST_ONCE,
        "kafka_python_transactions.py",
        line=("(offsets, member.metadata)", '(offsets, "billing")'),
        failures=(_doubled("zombie before", "TxnOffsetCommit", "new-id-without-group"),),
    ),
    Member(
        "kafka_python_read_uncommitted",
        AT_LEAST_ONCE,
        "kafka_python_transactions.py",
        line=(
            "KafkaConsumer(**CONSUMER)",
            'KafkaConsumer(**{**CONSUMER, "isolation_level": "read_uncommitted"})',
        ),
        failures=(_doubled("zombie before", "EndTxn", "zombie"),),
    ),
    Member(
        "at_least_once_without_flush",
        LOST_AND_DOUBLED,
        "at_least_once.py",
        promise="at-least-once",
        line=("    producer.flush(10)\n", ""),
        failures=(_lost("kill before", "Produce", "auto-commit-in-background"),),
    ),
    Member(
        "at_least_once_without_errors",
        LOST_AND_DOUBLED,
        "at_least_once.py",
        promise="at-least-once",
        line=("        raise KafkaException(error)\n", "        print(error)\n"),
        failures=(_lost("refuse for good", "Produce", "unread-errors"),),
    ),
    Member(
        "sqlite_without_a_key",
        AT_LEAST_ONCE,
        "sqlite_upsert.py",
        topics={"orders": 1},
        outputs=(),
        shows_database=True,
        line=("number INTEGER PRIMARY KEY, cents", "number INTEGER, cents"),
        failures=(_doubled("kill before", "OffsetCommit", "two-writes"),),
    ),
    Member(
        "offsets_with_results_unfenced",
        AT_LEAST_ONCE,
        "offsets_with_results.py",
        topics={"orders": 1},
        outputs=(),
        shows_database=True,
        line=(
            '            raise SystemExit("another instance has this partition now")\n',
            "            pass\n",
        ),
        failures=(_doubled("zombie before", "Fetch", "zombie"),),
    ),
    Member(
        "java_without_rewind",
        AT_MOST_ONCE,
        "JavaTransactions.java",
        line=("                    rewind(consumer);\n", ""),
        failures=(_lost("refuse for good", "Produce", "abort-without-rewind"),),
    ),
    Member(
        "streams_at_least_once",
        AT_LEAST_ONCE,
        "StreamsExactlyOnce.java",
        arguments=("{dir}",),
        line=(
            "        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);\n",
            "",
        ),
        failures=(_doubled("kill after", "Produce", "two-writes"),),
    ),
    Member(
        "franz_go_always_commits",
        AT_MOST_ONCE,
        "go",
        line=("kgo.TransactionEndTry(receipts.Err() == nil)", "kgo.TryCommit"),
        failures=(_lost("refuse for good", "Produce", "unread-errors"),),
    ),
)
"""Right programs with one line taken out that matters."""

# What the others do remains two writes.
_MENDED_TO_EXACTLY_ONCE = (
    "abort_without_rewind",
    "offsets_outside_transaction",
    "offset_of_the_record",
    "dead_letter_outside",
    "read_uncommitted",
    "new_id_without_group",
    "one_id_for_two",
)


def _mended(block: mends.Block) -> Member:
    [wrong] = (one for one in WRONG if one.file.name == block.file)
    exactly = wrong.name in _MENDED_TO_EXACTLY_ONCE
    return replace(
        wrong,
        name=f"{wrong.name}_mended",
        program=block.file,
        verdict=EXACTLY_ONCE if exactly else AT_LEAST_ONCE,
        promise="exactly-once" if exactly else "at-least-once",
        failures=(),
        mend=block,
    )


MENDED = tuple(_mended(block) for block in mends.blocks() if block.mends)
"""The wrong ones, each as docs/how-to/mistakes.md mends it."""

ZOO = {one.name: one for one in (*RIGHT, *IN_TWOS, *WRONG, *MUTANTS, *MENDED)}
