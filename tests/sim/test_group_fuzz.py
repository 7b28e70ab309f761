"""Requests about groups in which anything may stand, well formed as they are: none is internal error, none ends its
connection, the log can be replayed at any time, and who behaves is served."""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest
import trio

from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import Field, Struct
from tests.harness.classic_members import SimMember, coordinated
from tests.harness.offset_requests import commit, fetch_offsets
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError, SimClient
from tests.harness.simulation import deterministic

REQUESTS, RESTART_EVERY = 400, 100
PATIENCE_S = 0.5
KEYS = (8, 8, 9, 10, 11, 11, 11, 11, 12, 13, 14, 14, 14, 15, 16, 28, 42, 47, 68, 68, 68, 68, 69)
NUMBERS = (0, 0, 1, 1, 2, 3, -1, -1, -2, -3, 7, 100)
TEXTS = ("", "a", "b", "g", "none", "\u00fc\U0001f600", "x" * 300, "-", "..")
LIMITS = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63}
SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 61 ffffffff")
POOLS: dict[str, tuple[Any, ...]] = {
    "group_id": (*"gggggghhhi", ""),
    "member_id": ("", "", "", "m1", "m2", "m3"),
    "name": ("range", "range", "range", "uniform", "a", "b", "none"),
    "session_timeout_ms": (6_000, 6_000, 10_000, 30_000, 30_000, 30_000, 1_800_000, 5),
    "rebalance_timeout_ms": (1, 500, 6_000, 60_000, 60_000, 60_000, -1, 0, 2**31 - 1, -(2**31)),
    "retention_time_ms": (-1, -1, 0, 1, -2, 2**63 - 1, -(2**63)),
    "protocol_type": ("consumer", "consumer", "consumer", "connect", ""),
    "protocol_name": ("range", "range", "range", "uniform", ""),
    "server_assignor": (*[None] * 6, "range", "uniform", "none", ""),
    "subscribed_topic_regex": (None, None, "", "a.*", "[ab]", "(", "\\C", "\\QA"),
    "metadata": (*[SUBSCRIPTION] * 5, b"", b"\0", b"\0\0\xff\xff\xff\xff"),
    "group_instance_id": (*[None] * 6, "i1", "i2", ""),
    "instance_id": (*[None] * 6, "i1", "i2"),
    "rack_id": (*[None] * 6, "r", ""),
    "transactional_id": ("t", ""),
    "producer_id": (1, 2, -1),
    "member_epoch": (0, 0, 1, 2, 3, 4, -1, -2, -3),
    "key_type": (0, 0, 1, 2, 9),
}

LEARNED_AS = {"generation_id_or_member_epoch": "member_epoch", "generation_id": "member_epoch"}
"""Fields that take each other's values."""


class Fuzz:
    """``seen`` has values of earlier responses by the name of the field, so that later requests get further."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seen: dict[str, list[Any]] = {}

    def request(self) -> tuple[Any, type[Any], int]:
        handler = HANDLERS[self.rng.choice(KEYS)]
        module = importlib.import_module(f"oncelog.wire.messages.{handler.name}")
        name = "".join(word.title() for word in handler.name.split("_"))
        version = self.rng.randint(handler.min_version, handler.max_version)
        made = self.struct(getattr(module, f"{name}Request"), version)
        return made, getattr(module, f"{name}Response"), version

    def struct(self, kind: type[Struct], version: int) -> Any:
        made = kind()
        for field in kind.FIELDS:
            low, high = field.versions
            if low <= version <= high:
                setattr(made, field.name, self.value(field, field.name, version))
        return made

    def value(self, field: Field, name: str, version: int) -> Any:
        rng, kind = self.rng, field.kind
        low, high = field.nullable
        if low <= version <= high and rng.random() < 0.05:
            return None
        if kind == "array":
            size = rng.choice((0, 0, 0, 1, 2) if name == "topic_partitions" else (0, 1, 1, 1, 1, 2, 3))
            return [self.element(field, name, version) for _ in range(size)]
        seen = self.seen.get(LEARNED_AS.get(name, name))
        if seen and rng.random() < 0.5:
            return seen[-1] if rng.random() < 0.7 else rng.choice(seen)
        for one in rng.sample(POOLS.get(name, ()), len(POOLS.get(name, ()))):
            if one is not None or low <= version <= high:
                return one
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "bytes":
            return rng.choice((b"", SUBSCRIPTION, rng.randbytes(20)))
        if kind == "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        if kind == "string":
            return rng.choice(TEXTS)
        limit = LIMITS[kind]
        return rng.choice((*NUMBERS, *NUMBERS, limit - 1, -limit))

    def element(self, field: Field, name: str, version: int) -> Any:
        element = field.element
        if isinstance(element, Field):
            return self.value(element, {"subscribed_topic_names": "name"}.get(name, name), version)
        assert element is not None
        return self.struct(element, version)

    def learn(self, response: Struct) -> None:
        for field in type(response).FIELDS:
            value = getattr(response, field.name)
            if isinstance(value, list):
                for one in value:
                    if isinstance(one, Struct):
                        self.learn(one)
            elif isinstance(value, Struct):
                self.learn(value)
            elif field.name in ("member_id", "generation_id", "member_epoch", "topic_id") and value:
                known = self.seen.setdefault(LEARNED_AS.get(field.name, field.name), [])
                known.append(value)
                del known[:-5]


async def walk(seed: int) -> None:
    rng = random.Random(seed)
    fuzz = Fuzz(rng)
    config = {"offsets.topic.num.partitions": "2", "offsets.retention.check.interval.ms": "1000"}
    answered = 0
    async with SimBroker(config=config) as broker:
        client = await coordinated(broker)
        for topic in "ab":
            await create_topic(client, topic, 3)
        fuzz.seen = {
            "topic_id": [row.topic_id for row in broker.node.metadata.image.topics.values()],
            "name": ["a", "b"],
        }
        clients: list[SimClient] = []
        for number in range(REQUESTS):
            if number % RESTART_EVERY == RESTART_EVERY - 1:
                await (broker.stop() if rng.random() < 0.5 else broker.crash("process"))
                await broker.start()
                clients = []
            one = clients.pop() if clients and rng.random() < 0.7 else broker.connect()
            answered += await _call(fuzz, one, clients)
        assert answered > REQUESTS / 3, f"seed {seed}"
        client = broker.connect()
        assert await commit(client, "good", {"a": {0: 5}}) == {("a", 0): ErrorCode.NONE}
        assert await fetch_offsets(client, "good") == {("a", 0): 5}
        member = SimMember(broker, "well-behaved")
        await member.found()
        assert await member.heartbeat() is ErrorCode.NONE


async def _call(fuzz: Fuzz, client: SimClient, clients: list[SimClient]) -> bool:
    """Return whether a response came. A connection whose response is still pending may be left as it is."""
    request, response, version = fuzz.request()
    try:
        with trio.move_on_after(PATIENCE_S * fuzz.rng.choice((1, 1, 1, 20))):
            fuzz.learn(await client.call(request, version, response))
            clients.append(client)
            return True
    except ConnectionEndedError:
        raise AssertionError(f"closed after {request} v{version}") from None
    return False


@pytest.mark.parametrize("seed", range(20))
def test_anything_well_formed(seed: int) -> None:
    print(f"seed {seed}")
    deterministic(lambda: walk(seed), seed)
