"""Throttle times, whose quota holds and who shares it, against Kafka's own quota managers (`QuotaOracle.java`)."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable

import pytest

from oncelog.broker.metadata.client_quotas import ClientQuotasImage, quota_record
from oncelog.broker.security.client_limits import SWEEP_AT, UNLIMITED, ClientLimits
from oncelog.broker.security.rates import Rate, TokenBucket
from oncelog.broker.security.usage import MutationQuota
from oncelog.wire.errors import KafkaError
from tests.harness.kafka_oracle import Oracle

ORACLE = pathlib.Path(__file__).with_name("QuotaOracle.java")
KEYS = {
    "bytes": "producer_byte_rate",
    "percent": "request_percentage",
    "mutations": "controller_mutation_rate",
}
START_MS = 1_790_000_000_000
NAMES = ("a", "b", "c")
IDLE_MS = 3_600_000


def scenario(rng: random.Random, kind: str) -> list[str]:
    """What happens to one quota manager, as lines for the oracle."""
    samples, window_s = rng.choice([(11, 1), (2, 1), (3, 2), (1, 1)])
    lines = [f"new {kind} {samples} {window_s}"]
    largest = 10 ** rng.randrange(1, 6)
    now_ms = START_MS + rng.randrange(1000)
    levels = rng.choice([["ab"], ["a-"], ["-b"], ["ab", "a-"], ["a-", "-b"], ["ab", "a-", "-b"]])
    for _ in range(rng.randrange(20, 60)):
        now_ms += rng.choice([0, 1, rng.randrange(10), rng.randrange(1000), rng.randrange(20_000)])
        if rng.random() < 0.2:
            level = rng.choice(levels)
            user, client = (rng.choice([*NAMES, "*"]) if part != "-" else "-" for part in level)
            limit = rng.choice(["-", rng.randrange(1, largest), rng.randrange(1, largest) / 8])
            lines.append(f"quota {user} {client} {limit}")
        else:
            how = "use" if kind != "mutations" or rng.random() < 0.6 else "permissive"
            value = rng.choice([rng.randrange(1, 10), rng.randrange(1, 3 * largest)])
            lines.append(f"{how} {now_ms} {rng.choice(NAMES)} {rng.choice(NAMES)} {value}")
    return lines


class Ours:
    """The same of ours: `answer` takes such a line."""

    def __init__(self, kind: str, samples: int, window_s: int) -> None:
        self.kind = kind
        self.window_ms = window_s * 1000
        self.image = ClientQuotasImage()
        make: Callable[[], Rate | TokenBucket] = lambda: (  # noqa: E731
            TokenBucket(samples, self.window_ms) if kind == "mutations" else Rate(samples, self.window_ms)
        )
        self.limits = ClientLimits(KEYS[kind], make, IDLE_MS)

    def change(self, user: str, client: str, limit: str) -> None:
        entity = tuple(
            (kind, None if name == "*" else name)
            for kind, name in (("client-id", client), ("user", user))
            if name != "-"
        )
        self.image.replay(quota_record(entity, KEYS[self.kind], None if limit == "-" else float(limit)))
        self.limits.load(self.image.entities)

    def use(self, how: str, now_ms: int, user: str, client: str, value: float) -> int:
        if not self.limits.is_enabled:
            return 0
        sensor, limit = self.limits.find(user, client, now_ms)
        if isinstance(sensor, Rate):
            sensor.record(value, now_ms)
            throttle_ms = sensor.throttle_ms(limit, now_ms)
            return min(throttle_ms, self.window_ms) if self.kind == "percent" else throttle_ms
        quota = MutationQuota(sensor, limit, lambda: now_ms, is_strict=how == "use")
        try:
            quota.record(value)  # type: ignore[arg-type]
        except KafkaError:
            return -quota.throttle_ms()
        return quota.throttle_ms()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYS)
def test_throttle_times_are_kafkas(kind: str, oracle: Oracle) -> None:
    rng = random.Random(f"quotas {kind}")
    scenarios = [scenario(rng, kind) for _ in range(400)]
    given = "".join(f"{line}\n" for lines in scenarios for line in lines)
    theirs = iter(oracle(ORACLE, given.encode()).decode().split())
    throttled = 0
    for number, lines in enumerate(scenarios):
        _, _, samples, window_s = lines[0].split()
        ours = Ours(kind, int(samples), int(window_s))
        for line in lines[1:]:
            words = line.split()
            if words[0] == "quota":
                ours.change(*words[1:])
                continue
            how, now_ms, user, client, value = words
            wanted = int(next(theirs))
            found = ours.use(how, int(now_ms), user, client, float(value))
            assert found == wanted, (number, line, lines)
            throttled += bool(found)
    assert next(theirs, None) is None
    assert throttled > 1000


def test_a_client_without_an_id_shares_its_users_quota_only() -> None:
    limits = ClientLimits("producer_byte_rate", lambda: Rate(11, 1000), IDLE_MS)
    limits.load({(("client-id", None),): {"producer_byte_rate": 1.0}})
    assert limits.find("a", None, 0)[1] == UNLIMITED
    limits.load({(("user", "a"),): {"producer_byte_rate": 1.0}})
    assert limits.find("a", None, 0)[1] == 1.0


def test_sensors_of_clients_that_have_gone_are_forgotten() -> None:
    made: list[None] = []

    def make() -> Rate:
        made.append(None)
        return Rate(11, 1000)

    limits = ClientLimits("producer_byte_rate", make, IDLE_MS)
    limits.load({(("client-id", None),): {"producer_byte_rate": 1.0}})
    for number in range(SWEEP_AT):
        limits.find("a", str(number), 0)
    limits.find("a", "0", IDLE_MS)
    limits.find("a", "new", IDLE_MS)
    assert len(made) == SWEEP_AT + 1
    limits.find("a", "0", IDLE_MS)
    assert len(made) == SWEEP_AT + 1, "it was used lately"
    limits.find("a", "1", IDLE_MS)
    assert len(made) == SWEEP_AT + 2, "it was forgotten"


def test_a_throttle_time_fits_its_field() -> None:
    rate = Rate(11, 1000)
    rate.record(1e12, 0)
    assert rate.throttle_ms(1, 0) == 2**31 - 1
