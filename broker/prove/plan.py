"""`ProofPlan`: what is proved: a program, its topics, what it reads and where its results are. It is plain data, and
part of the file of a finding, from which `oncelog prove --again` repeats one trial.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.names import meant, not_found
from oncelog.broker.control.new_records import NewRecord, checked_record
from oncelog.broker.prove.json_paths import parts_of
from oncelog.broker.security.user_options import MECHANISMS_OF_USERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Promise: TypeAlias = Literal["exactly-once", "at-least-once", "at-most-once"]
PROMISES: Final[tuple[Promise, ...]] = ("exactly-once", "at-least-once", "at-most-once")

ADDRESS_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
FOLDER_VARIABLE: Final = "ONCELOG_PROVE_DIR"
INSTANCE_VARIABLE: Final = "ONCELOG_PROVE_INSTANCE"
QUIET_S, TIMEOUT_S = 0.3, 20.0
UPSTREAM_TIMEOUT_S: Final = 180.0
"""`TIMEOUT_S` on a cluster, where sessions and transactions time out in real time."""
TRIAL_VARIABLE: Final = "ONCELOG_PROVE_TRIAL"
PLACES: Final = ("{bootstrap}", "{dir}", "{trial}", "{instance}")
"""In a command they stand for the broker's address, the trial's folder, its name and the number of the instance."""
OF_A_TRIAL: Final = ("{dir}", "{trial}", FOLDER_VARIABLE, TRIAL_VARIABLE)
"""What each trial has for itself."""
INSTANCES_MAX: Final = 8
NODES: Final = 3
"""As in production: a client that loses its connection to one node has others. With a single node it is left without
any, and shows what it does nowhere else.
"""
NODES_MAX: Final = 9
"""Each takes memory and time in every trial."""
MECHANISM: Final = "SCRAM-SHA-256"
"""How the program logs in, if the plan does not say it."""


@dataclass(frozen=True)
class ProofPlan:
    """See docs/how-to/prove.md, which says what each means."""

    command: tuple[str, ...]
    topics: Mapping[str, int]
    """Partitions by topic."""
    inputs: Mapping[str, tuple[Mapping[str, Any], ...]]
    """Records by topic, as `record_data` gives them."""
    outputs: tuple[str, ...]
    promise: Promise = "exactly-once"
    instances: int = 1
    nodes: int = NODES
    address_variable: str = ADDRESS_VARIABLE
    until_exit: bool = False
    """Whether the program is done when it ends with exit code 0; if not, when it has nothing more to do."""
    quiet_s: float = QUIET_S
    timeout_s: float = TIMEOUT_S
    """Seconds of real time after which a trial is stuck, from its last disturbance on."""
    ignore: tuple[str, ...] = ()
    """JSON paths of values, ``headers`` or ``header:NAME``, and ``offsets`` of groups, that are not compared."""
    key: str | None = None
    """The JSON path of what names the input in an output; None: outputs are compared as a whole."""
    judge: str | None = None
    """The function that judges the outputs, as ``MODULE:FUNCTION``; None: they are compared with the undisturbed ones.
    """
    check: str | None = None
    """A shell command whose output counts, at the end of a trial."""
    reset: str | None = None
    """A shell command that runs before each trial."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Configuration of the broker."""
    seed: int = 0
    user: str | None = None
    """The user as whom the program logs in; None: without a log-in."""
    password: str | None = field(default=None, repr=False)
    mechanism: str = MECHANISM
    tls: bool = False
    """The listeners have TLS."""
    upstream: str | None = None
    """The Kafka cluster on which it is proved; None: on brokers of oncelog."""
    from_snapshot: str | bytes | None = field(default=None, repr=False)
    """The path of the snapshot with whose data each trial begins, or its content."""

    def to_data(self) -> dict[str, Any]:
        """Return the plan as JSON has it, without its password, and without a snapshot's content."""
        is_path = isinstance(self.from_snapshot, str)
        plan = self if is_path else replace(self, from_snapshot=None)
        data: dict[str, Any] = json.loads(json.dumps(asdict(plan)))
        del data["password"]
        return data

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> ProofPlan:
        """Return the plan of `to_data`. Raises InvalidArgumentError."""
        try:
            plan = cls(**data)
            return cls(
                **{
                    **data,
                    "command": tuple(plan.command),
                    "inputs": {topic: tuple(rows) for topic, rows in plan.inputs.items()},
                    "outputs": tuple(plan.outputs),
                    "ignore": tuple(plan.ignore),
                }
            )
        except (TypeError, AttributeError) as error:
            raise InvalidArgumentError(f"this is no plan of oncelog prove: {error}") from None

    @property
    def ignored_paths(self) -> list[str]:
        """What `ignore` has but for headers and offsets."""
        return [
            one for one in self.ignore if one not in ("headers", "offsets") and not one.startswith("header:")
        ]

    @property
    def paths(self) -> list[tuple[str, str]]:
        """The JSON paths, each with its option."""
        keys = [] if self.key in (None, "key") else [("--key", self.key)]
        return [*keys, *(("--ignore", one) for one in self.ignored_paths)]

    def validate(self) -> None:
        """Raises InvalidArgumentError for a plan that cannot be judged, in words for the command line and Python."""
        if not self.command:
            raise InvalidArgumentError("there is no command: oncelog prove OPTIONS -- COMMAND")
        if not self.inputs:
            raise InvalidArgumentError(
                "there is no input: say what the program reads (--input TOPIC=FILE, or inputs=)"
            )
        for name, records in self.inputs.items():
            if not records:
                raise InvalidArgumentError(f"input {name}: there are no records")
        if not self.outputs and self.check is None:
            raise InvalidArgumentError(
                "there is no output: say what counts (--output TOPIC or --check COMMAND, or outputs= or check=)"
            )
        for what, names in (("input", self.inputs), ("output", self.outputs)):
            for name in names:
                if name not in self.topics:
                    raise InvalidArgumentError(f"{what} {name}: {not_found('topic', name, self.topics)}")
        if not 1 <= self.instances <= INSTANCES_MAX:
            raise InvalidArgumentError(f"instances {self.instances}: expected 1 to {INSTANCES_MAX}")
        if not 1 <= self.nodes <= NODES_MAX:
            raise InvalidArgumentError(f"nodes {self.nodes}: expected 1 to {NODES_MAX}")
        if self.upstream is not None and self.nodes != 1:
            raise InvalidArgumentError(
                f"nodes {self.nodes}: they are for brokers of oncelog, not for the cluster at {self.upstream}"
            )
        if self.user is not None and not self.password:
            raise InvalidArgumentError(
                f"the program logs in as {self.user}, and findings have no passwords: --user {self.user}:PASSWORD"
            )
        if self.mechanism not in MECHANISMS_OF_USERS.split(","):
            raise InvalidArgumentError(f"mechanism {self.mechanism}: expected one of {MECHANISMS_OF_USERS}")
        if self.upstream is not None and self.from_snapshot is not None:
            raise InvalidArgumentError(
                f"a snapshot is for brokers of oncelog, not for the cluster at {self.upstream}"
            )
        if self.upstream is not None and self.config:
            raise InvalidArgumentError(
                f"{next(iter(self.config))} is for a broker of oncelog, not for the cluster at {self.upstream}"
            )
        for name, seconds in (("quiet", self.quiet_s), ("timeout", self.timeout_s)):
            if not 0 < seconds < 3600:
                raise InvalidArgumentError(
                    f"{name} {seconds:g}: expected more than 0 and less than 3600 seconds"
                )
        shell = [(f"--{name}", text) for name, text in (("check", self.check), ("reset", self.reset)) if text]
        for where, text in (("the command", " ".join(self.command)), *shell):
            for place in re.findall(r"\{\w+\}", text):
                if place not in PLACES and (hint := meant(place, PLACES)):
                    raise InvalidArgumentError(f"there is no {place}{hint} ({where} has it)")
        for option, path in self.paths:
            try:
                parts_of(path)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{option}: {error}") from None

    @property
    def is_checked_in_common(self) -> bool:
        """Whether --check or --reset is about something that all trials have in common, such as one database."""
        return any(
            text is not None and not any(one in text for one in OF_A_TRIAL)
            for text in (self.check, self.reset)
        )

    @property
    def input_count(self) -> int:
        """How many records the program is given."""
        return sum(map(len, self.inputs.values()))


def nodes_of(given: int | None, upstream: str | None, from_snapshot: str | bytes | None) -> int:
    """Return how many nodes a trial has that says so, or does not: a snapshot is of one node, mostly."""
    if given is not None:
        return given
    return NODES if upstream is None and from_snapshot is None else 1


def record_data(given: object) -> dict[str, Any]:
    """Return a record, given as `oncelog.Broker.produce` takes it, as JSON has it: bytes that are no text as base64.
    Raises InvalidArgumentError.
    """
    record = checked_record(given)
    data: dict[str, Any] = {}
    for name, value in (("key", record.key), ("value", record.value)):
        if value is not None:
            data[name] = _text(value)
    if record.headers:
        data["headers"] = [[name, None if value is None else _text(value)] for name, value in record.headers]
    if record.timestamp is not None:
        data["timestamp"] = record.timestamp
    if record.partition is not None:
        data["partition"] = record.partition
    return data


def _text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _bytes(given: str | dict[str, str] | None) -> bytes | str | None:
    return base64.b64decode(given["base64"]) if isinstance(given, dict) else given


def new_record(data: Mapping[str, Any]) -> NewRecord:
    """Return the record of `record_data`."""
    fields = {name: data[name] for name in ("timestamp", "partition") if name in data}
    fields |= {name: _bytes(data[name]) for name in ("key", "value") if name in data}
    if "headers" in data:
        fields["headers"] = [(name, _bytes(value)) for name, value in data["headers"]]
    return checked_record(fields)


RECORD_WORDS: Final = frozenset(("key", "value", "headers", "timestamp", "partition"))


def records_of_lines(lines: Iterable[str], name: str) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines: an object of `RECORD_WORDS` is a record with its key and headers,
    any other value is the record's value, as JSON writes it. ``name`` is the file's. Raises InvalidArgumentError with
    the number of the line.
    """
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if isinstance(value, dict) and "value" in value and not _other_words(value):
                given = {word: _field(word, one) for word, one in value.items()}
            else:
                given = {"value": line.strip()}
            records.append(record_data(given))
        except json.JSONDecodeError as error:
            raise InvalidArgumentError(f"{name}, line {number}: this is no JSON: {error}") from None
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}, line {number}: {error}") from None
    if not records:
        raise InvalidArgumentError(f"{name} has no records")
    return records


def _other_words(data: Mapping[str, Any]) -> list[str]:
    """Return the names of an object that a record does not have. Raises InvalidArgumentError if each is like one."""
    others = [one for one in data if one not in RECORD_WORDS]
    hints = [hint for one in others if (hint := meant(one, RECORD_WORDS))]
    if others and len(hints) == len(others):
        raise InvalidArgumentError(
            f"a record has no {others[0]!r}{hints[0]} An object that is the value itself is written as "
            '{"value": {...}}'
        )
    return others


def _field(word: str, value: Any) -> Any:
    if word in ("key", "value") and value is not None and not isinstance(value, str):
        return json.dumps(value)
    return value
