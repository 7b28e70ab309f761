"""A search for requests that hold the loop for long: ``python -m tests.soak.costly_requests SECONDS [--seed N]``.

Nobody tells it what is costly. It sends random valid requests of every API and version to a simulated broker, each
trial to a new one, keeps the costliest trial of each API, and changes and grows it: more rows, equal or numbered,
longer texts, other batches and codecs, more tagged fields, another request before it. The cost of a trial is that of
the longest turn which any task of the broker takes, where each step of work in slices is a turn of its own (a real
slice is a millisecond and one step): in lines of Python, the same in each run, or in CPU time, which sees C code too.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import random
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import trio

from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.compiler import REQUEST_ELEMENTS_MAX
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import decode_response, encode_frame, encode_request
from oncelog.wire.schema import Field, Request, Struct, deep_copy
from tests.common import batches
from tests.common.large_batches import EMPTY, LARGE_BATCHES
from tests.harness.classic_members import coordinated
from tests.harness.offset_requests import commit
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import deterministic
from tests.harness.steps import LongestTurn
from tests.harness.transactional_producer import Link, TransactionalProducer

Rights = Literal["all", "none", "no log-in"]
Unit = Literal["lines", "microseconds"]
PATIENCE_S = 40
"""Simulated seconds that a response may take."""
TRIES_MAX = 100
"""Requests that may be made in vain, because the version cannot hold a value of another field's name."""
API_VERSIONS = 18
"""Whose response has another version where the request's is unknown."""
BEFORE_THE_LOG_IN = (17, API_VERSIONS, 36)
LEARNT_BYTES_MAX = 20_000
"""Values of larger responses are not used in later requests."""
BATCH_FRACTIONS = (400, 1_000, 4_000, 40_000)
NUMBERS = (0, 0, 0, 1, 1, 2, 3, -1, -1, -2, 5, 16, 100, 30_000)
LIMITS = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63, "uint16": 2**16, "uint32": 2**32}
TEXTS = (
    "",
    "here",
    "here",
    "group",
    "id",
    "member",
    "x",
    "\u00fc" * 40,
    "consumer",
    "range",
    "1",
    "*",
    "default",
)
PATTERNS = ("\\pL", "a", ".*", "(a|b)", "a{1,9}", "[^x]", "(?i:h)", "\\w+", "^", "x?")
CONFIG_KEYS = (
    "retention.ms",
    "cleanup.policy",
    "follower.replication.throttled.replicas",
    "message.max.bytes",
)
LEARNT = (
    "member_id",
    "member_epoch",
    "generation_id",
    "session_id",
    "topic_id",
    "producer_id",
    "producer_epoch",
)
POOLS: dict[str, tuple[Any, ...]] = {
    "topic": ("here", "here", "here", "a"), "topic_name": ("here", "a"),
    "name": ("here", "here", *CONFIG_KEYS, "range"), "resource_name": ("here", "here", "0", "", "group"),
    "resource_type": (2, 2, 3, 4, 8, 16, 32, 1), "config_operation": (0, 1, 2, 3),
    "group_id": ("group", "group", "new"), "transactional_id": ("id", "id", "new", None),
    "timeout_ms": (0, 1_000, 30_000), "max_wait_ms": (0, 1), "acks": (1, 1, -1, 0),
    "num_partitions": (1, 1, -1, 9_000), "replication_factor": (1, -1), "session_timeout_ms": (30_000,),
    "rebalance_timeout_ms": (1, 30_000), "protocol_type": ("consumer",), "member_epoch": (0, 0, 1, -1),
    "key_type": (0, 1, 2), "timestamp": (-1, -2, -3, -4, 0, 5), "compression_type": (0, 1, 2, 3, 4),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", 1, 2), "iterations": (4_096, 16_384),
    "partition_index": (0, 0, 1, 9), "index": (0, 0, 1, 9), "partition": (0, 0, 1, 9),
    "entity_type": ("user", "client-id"), "quota_type": (0, 1), "user": ("alice", "bob"), "operation": (1, 2, 3, 8),
}  # fmt: skip
"""Values by the field's name, that lead further than others would."""


@dataclass
class Sent:
    """A request of a trial, with so many unknown tagged fields in its header and at its end."""

    message: Any
    version: int
    tags: int = 0

    def frame(self) -> bytes:
        """Raises ValueError for a value that the version does not have."""
        data = encode_request(self.message, self.version, 0, "soak")
        if self.tags and self.message.is_flexible(self.version):
            # Each has its number, as a varint of two bytes from 128 on, and no bytes.
            tags = b"".join(bytes((at & 127 | 128, at >> 7, 0)) for at in range(1_000, 1_000 + self.tags))
            count = bytes((self.tags & 127 | 128, self.tags >> 7)) if self.tags > 127 else bytes((self.tags,))
            data = encode_frame(data[4:-1] + count + tags) if data[-1] == 0 else data
        return data


@dataclass
class Trial:
    requests: list[Sent]
    rights: Rights
    cost: int = 0
    where: str = ""
    sizes: list[int] = field(default_factory=list)
    outcome: str = ""

    def row(self) -> str:
        """Return a line about it, with what its requests hold most of."""
        names = [
            f"{type(one.message).__name__.removesuffix('Request')} v{one.version} {held_most(one)} ({size:,} bytes)"
            for one, size in zip(self.requests, self.sizes, strict=True)
        ]
        return f"{self.cost:>10,}  rights: {self.rights}; {', then '.join(names)} -> {self.outcome}  {self.where}"


def held_most(sent: Sent) -> str:
    places = sorted(places_of(sent.message), key=lambda place: -len(getattr(*place_of(place))))[:2]
    parts = [f"{len(getattr(owner, name)):,} in {name}" for owner, name in map(place_of, places)]
    return ", ".join([*parts, *([f"{sent.tags:,} tags"] if sent.tags else [])])


Place = tuple[Struct, Field]


def place_of(place: Place) -> tuple[Struct, str]:
    return place[0], place[1].name


def places_of(value: Any) -> Iterator[Place]:
    """The lists, texts and bytes of a message that are not empty; of a list, also those of its first element."""
    for one in type(value).FIELDS:
        content = getattr(value, one.name)
        if isinstance(content, Struct):
            yield from places_of(content)
        elif isinstance(content, list | str | bytes) and content:
            yield value, one
            if isinstance(content, list) and isinstance(content[0], Struct):
                yield from places_of(content[0])


def elements_of(value: Any) -> int:
    """The number of elements in all arrays, if all rows are as the first one."""
    if isinstance(value, Struct):
        return sum(elements_of(getattr(value, one.name)) for one in type(value).FIELDS)
    return len(value) * (1 + elements_of(value[0])) if isinstance(value, list) and value else 0


def numbered(value: Any, number: int) -> Any:
    """Return a copy of an element that differs from others by its number."""
    if isinstance(value, str):
        return f"{value}{number}"
    if isinstance(value, bytes) and len(value) == 16:
        return value[:12] + number.to_bytes(4, "big")
    if isinstance(value, Struct):
        copy = object.__new__(type(value))
        is_numbered = False
        for one in value.FIELDS:
            content = getattr(value, one.name)
            if not is_numbered and one.kind in ("string", "int32", "uuid") and content is not None:
                content, is_numbered = numbered(content, number), True
            setattr(copy, one.name, content)
        return copy
    return number if isinstance(value, int) and not isinstance(value, bool) else value


class Search:
    """``best``: the costliest trial so far by API key and rights. Each choice follows from the seed where the cost is
    counted in lines.
    """

    def __init__(
        self, seed: int, bytes_max: int, unit: Unit, api_keys: Collection[int] = tuple(HANDLERS)
    ) -> None:
        self.api_keys = api_keys
        self.rng = random.Random(seed)
        self.bytes_max = bytes_max
        self.unit = unit
        self.best: dict[tuple[int, Rights], Trial] = {}
        self.trials = 0
        self._seen: dict[str, list[Any]] = {}
        self._turns: Iterator[tuple[int, Rights]] = self._in_turns()

    def _in_turns(self) -> Iterator[tuple[int, Rights]]:
        every: list[Rights] = ["all", "all", "none"]
        while True:
            for key in self.api_keys:
                yield key, self.rng.choice(every)
                if key in BEFORE_THE_LOG_IN:
                    yield key, "no log-in"

    def step(self) -> Trial:
        """Make a trial, run it, and keep it if it is the costliest of its API."""
        key, rights = next(self._turns)
        best = self.best.get((key, rights))
        trial = (
            self._changed(best) if best is not None and self.rng.random() < 0.7 else self._new(key, rights)
        )
        self.trials += 1
        try:
            deterministic(lambda: self._run(trial), slice_steps=1)
        except BaseException as error:
            error.add_note(f"in the trial {trial.requests}"[:2_000])
            raise
        if best is None or trial.cost > best.cost:
            self.best[key, rights] = trial
        return trial

    # -- making requests

    def _new(self, key: int, rights: Rights) -> Trial:
        requests = [self._request(key)]
        while self.rng.random() < 0.25:
            others = [*self.best.values()]
            before = self.rng.choice(others).requests[-1] if others and self.rng.random() < 0.5 else None
            if before is None:
                before = self._request(self.rng.choice([key, 0, 11, 68, 22, 1, 78]))
            requests.insert(0, before)
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            requests[-1] = self._grown(requests[-1])
        return Trial(requests[-3:], rights)

    def _changed(self, best: Trial) -> Trial:
        requests = list(best.requests)
        at = self.rng.randrange(len(requests))
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            requests[at] = self._grown(requests[at])
        return Trial(requests, best.rights)

    def _request(self, key: int) -> Sent:
        handler = HANDLERS[key]
        module = importlib.import_module(f"oncelog.wire.messages.{handler.name}")
        kind = getattr(module, "".join(word.title() for word in handler.name.split("_")) + "Request")
        version = self.rng.randint(handler.min_version, handler.max_version)
        for _ in range(TRIES_MAX):
            sent = Sent(self._struct(kind, version), version)
            try:
                sent.frame()
            except ValueError as error:
                refused = error
            else:
                return sent
        raise refused

    def _struct(self, kind: type[Struct], version: int) -> Any:
        made = kind()
        for one in kind.FIELDS:
            if one.versions[0] <= version <= one.versions[1]:
                setattr(made, one.name, self._value(one, one.name, version))
        return made

    def _value(self, one: Field, name: str, version: int) -> Any:
        rng = self.rng
        may_be_null = one.nullable[0] <= version <= one.nullable[1]
        if may_be_null and rng.random() < 0.15:
            return None
        if one.kind == "array":
            return [self._element(one.element, name, version) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        if one.kind == "struct":
            return self._element(one.element, name, version)
        if name in self._seen and rng.random() < 0.6:
            return rng.choice(self._seen[name])
        if one.kind == "string" and ("regex" in name or "pattern" in name):
            return rng.choice(PATTERNS)
        fitting = [
            value
            for value in POOLS.get(name, ())
            if (isinstance(value, str) == (one.kind == "string") if value is not None else may_be_null)
        ]
        if fitting and rng.random() < 0.9:
            return rng.choice(fitting)
        if one.kind == "bool":
            return rng.random() < 0.5
        if one.kind in ("bytes", "records"):
            return self._bytes(one.kind)
        if one.kind == "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        if one.kind == "string":
            return rng.choice(TEXTS)
        if one.kind == "float64":
            return rng.choice((0.0, 1.0, 1e9))
        limit, signed = LIMITS[one.kind], one.kind.startswith("int")
        number = rng.choice((*NUMBERS, limit - 1))
        return number if -limit * signed <= number < limit else 0

    def _element(self, element: Any, name: str, version: int) -> Any:
        return (
            self._value(element, name, version)
            if isinstance(element, Field)
            else self._struct(element, version)
        )

    def _bytes(self, kind: str) -> bytes:
        """Return a batch, or bytes of one of many forms: repeated units, compressed or not."""
        rng = self.rng
        codec = rng.randrange(5)
        count = rng.choice((1, 10, 1_000, 30_000))
        if kind == "records" and rng.random() < 0.4:
            return rng.choice(list(LARGE_BATCHES.values()))(rng.choice(BATCH_FRACTIONS)).batch()
        if kind == "records":
            units = (EMPTY, batches.record(None, None), batches.record(b"k", bytes(rng.choice((1, 3_000)))))
            unit = rng.choice((*units, batches.compress(codec, b""), b"\0\1", rng.randbytes(3)))
            payload = unit * min(count, 10_000_000 // len(unit))
            if rng.random() < 0.8:
                payload = batches.compress(codec, payload)
            return batches.batch([payload], attributes=codec, count=count, last_offset_delta=count - 1)
        unit = rng.choice(
            (b"\0", b"\x0a\0", b"\x12\0", b"\x0a\x04\x12\x02\x12\0", rng.randbytes(5), b"n,,n=a,r=b,")
        )
        payload = unit * count
        return batches.compress(codec, payload) if rng.random() < 0.5 else payload

    def _grown(self, sent: Sent) -> Sent:
        """Return a copy with one thing changed; the largest of it that is valid and has at most ``bytes_max``."""
        rng = self.rng
        if rng.random() < 0.08:
            return replace(sent, tags=rng.choice((10, 1_000, 9_000)))
        times = rng.choice((2, 3, 10, 100, 1_000, 10_000))
        distinct = rng.random() < 0.6
        choice = rng.random()
        while times > 1:
            message = deep_copy(sent.message, bytes)
            grown = replace(sent, message=message)
            places = list(places_of(message))
            if not places or choice < 0.2:
                self._change(message, sent.version)
            else:
                owner, one = places[int(choice * 1_000_003) % len(places)]
                content = getattr(owner, one.name)
                if one.kind == "records":
                    content = self._bytes("records")
                elif isinstance(content, list):
                    rounds = range(min(times, REQUEST_ELEMENTS_MAX // len(content)))
                    content = [
                        numbered(row, at) if distinct else row for at in rounds for row in content
                    ] or content
                elif len(content) * times <= self.bytes_max:
                    content = content * times
                setattr(owner, one.name, content)
            try:
                if elements_of(message) <= REQUEST_ELEMENTS_MAX and len(grown.frame()) <= self.bytes_max:
                    return grown
            except ValueError:
                pass
            times //= 4
        return sent

    def _change(self, message: Any, version: int) -> None:
        """Give a field of a message, or of the first row of a list in it, another value."""
        owners = [message, *(owner for owner, _ in places_of(message))]
        owner = self.rng.choice(owners)
        fields = [one for one in type(owner).FIELDS if one.versions[0] <= version <= one.versions[1]]
        if fields:
            one = self.rng.choice(fields)
            setattr(owner, one.name, self._value(one, one.name, version))

    # -- sending them

    async def _run(self, trial: Trial) -> None:
        config = {"oncelog.client.metrics.enable": "true", "auto.create.topics.enable": "true"}
        users, protocol = {}, "PLAINTEXT"
        if trial.rights == "none":
            config["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        elif trial.rights == "no log-in":
            users, protocol = {"alice": "secret"}, "SASL_PLAINTEXT"
            config["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
        async with SimBroker(config=config, users=users, protocol=protocol) as broker:
            client = await self._prepared(broker) if trial.rights == "all" else broker.connect()
            frames = [one.frame() for one in trial.requests]
            trial.sizes = [len(frame) for frame in frames]
            gc.collect()
            gc.disable()
            turn = LongestTurn() if self.unit == "lines" else LongestCpu()
            try:
                for sent, frame in zip(trial.requests, frames, strict=True):
                    trial.outcome = await self._send(client, sent, frame)
            except (ConnectionEndedError, BrokenPipeError):
                trial.outcome = "closed"
            finally:
                turn.end()
                gc.enable()
            if isinstance(turn, LongestTurn):
                trial.cost = turn.lines
                trial.where = ", ".join(f"{name} {lines:,}" for name, lines in turn.where.most_common(3))
            else:
                trial.cost = turn.microseconds

    async def _prepared(self, broker: SimBroker) -> SimClient:
        client = await coordinated(broker)
        topic_id = await create_topic(client, "here", 10)
        await produce(client, "here")
        await commit(client, "group", {"here": {0: 1}})
        producer = TransactionalProducer(Link(client), "id")
        await producer.init()
        self._seen |= {"topic_id": [topic_id], "producer_id": [producer.producer_id]}
        return client

    async def _send(self, client: SimClient, sent: Sent, frame: bytes) -> str:
        await client.send_bytes(frame)
        kind: type[Request[Any]] = type(sent.message)
        if getattr(sent.message, "acks", 1) == 0:
            return "no response"
        payload = None
        with trio.move_on_after(PATIENCE_S):
            payload = await client.receive_frame()
        if payload is None:
            return "waits"
        if len(payload) > LEARNT_BYTES_MAX:
            return f"{len(payload):,} bytes"
        if sent.message.API_KEY == API_VERSIONS:
            return f"{len(payload):,} bytes"
        _, response = decode_response(kind, sent.version, payload)
        self._learn(response)
        code = getattr(response, "error_code", 0)
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            raise AssertionError(f"an internal error: {sent}")
        return ErrorCode(code).name if code else f"{len(payload):,} bytes"

    def _learn(self, response: Struct) -> None:
        for one in type(response).FIELDS:
            value = getattr(response, one.name)
            if isinstance(value, list):
                for element in value[:5]:
                    if isinstance(element, Struct):
                        self._learn(element)
            elif isinstance(value, Struct):
                self._learn(value)
            elif one.name in LEARNT and value:
                known = self._seen.setdefault(one.name, [])
                if value not in known:
                    known.append(value)
                    del known[:-5]


class LongestCpu(trio.abc.Instrument):
    """The longest turn of any task but the one that makes it, in CPU time of the thread."""

    def __init__(self) -> None:
        self.microseconds = 0
        self._own = trio.lowlevel.current_task()
        self._began = 0
        trio.lowlevel.add_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        self._began = time.thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument."""
        if task is not self._own:
            self.microseconds = max(self.microseconds, (time.thread_time_ns() - self._began) // 1_000)

    def end(self) -> None:
        """Measure no more."""
        trio.lowlevel.remove_instrument(self)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.soak.costly_requests", description=__doc__)
    parser.add_argument("seconds", type=float, help="how long to search")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random choices")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="the largest size of a request")
    parser.add_argument(
        "--api", default="", help="only APIs with this text in their name, such as list_groups"
    )
    parser.add_argument(
        "--unit", choices=("lines", "microseconds"), default="microseconds", help="of the cost"
    )
    parser.add_argument("--rows", type=int, default=30, help="the number of trials in the output")
    parser.add_argument("--save", help="a folder for the frames of these trials, as JSON")
    options = parser.parse_args()
    keys = [key for key, handler in HANDLERS.items() if options.api in handler.name]
    found = Search(options.seed, options.bytes, options.unit, keys)
    until = time.monotonic() + options.seconds
    while time.monotonic() < until:
        found.step()
    print(f"{found.trials} trials, seed {options.seed}; the longest turn of each, in {options.unit}:")
    costliest = sorted(found.best.values(), key=lambda trial: -trial.cost)[: options.rows]
    for number, trial in enumerate(costliest):
        print(trial.row())
        if options.save:
            with open(f"{options.save}/{number}.json", "w") as file:
                json.dump([trial.rights, *(one.frame().hex() for one in trial.requests)], file)


if __name__ == "__main__":
    main()
