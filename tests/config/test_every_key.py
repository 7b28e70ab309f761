"""Every key that Kafka's classes declare, also the internal ones, against ours: name, type, default, importance,
whether it is internal, whether it may be changed while the broker runs, and the broker's key that it defaults to.

What differs is listed here, with the reason; a test fails for anything else, in both directions.
"""

from __future__ import annotations

import pathlib
from typing import NamedTuple

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import OUR_DEFAULTS, ConfigKey, UpdateMode
from oncelog.broker.config.definitions_known import keys_without_effect
from oncelog.broker.config.group_config import GroupConfig
from oncelog.broker.config.topic_config import TopicConfig
from tests.common import facts
from tests.harness.kafka_oracle import Oracle

pytestmark = [pytest.mark.slow, facts.needs(facts.HAS_KEYS_OF_4_4, "keys of 4.4")]

MODES = {"read-only": UpdateMode.READ_ONLY, "per-broker": UpdateMode.PER_BROKER}


class Row(NamedTuple):
    """One key."""

    type: str
    default: str
    importance: str
    is_internal: bool
    mode: UpdateMode
    broker_key: str


@pytest.fixture(scope="module")
def kafkas(oracle: Oracle) -> dict[str, dict[str, Row]]:
    """By kind of configuration and name."""
    found: dict[str, dict[str, Row]] = {}
    told = oracle(pathlib.Path(__file__).with_name("ConfigKeysOracle.java"))
    for line in told.decode().splitlines():
        kind, name, type_name, default, importance, internal, mode, broker_key = line.split("\t")
        row = Row(
            type_name.lower(),
            default,
            importance.lower(),
            internal == "true",
            MODES.get(mode, UpdateMode.CLUSTER_WIDE),
            broker_key,
        )
        found.setdefault(kind, {})[name] = row
    return found


def our_row(key: ConfigKey) -> Row:
    default = key.to_text(key.kafka_default)
    synonym = key.synonyms[0][0] if key.synonyms else "null"
    return Row(
        key.type.name.lower(),
        "null" if default is None else default,
        key.importance,
        key.internal,
        key.update_mode,
        synonym,
    )


DIFFERENT: dict[str, tuple[str, ...]] = {
    # Without a default in Kafka; here one node needs none of them to be said.
    "process.roles": ("default",),
    "node.id": ("default",),
    "controller.listener.names": ("default",),
}
"""Fields of Kafka's broker keys that differ, beside the defaults of OUR_DEFAULTS, which differences.md lists."""
THROTTLES = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Keys that Kafka has outside these definitions, in DynamicReplicationConfig."""


def test_broker_keys(kafkas: dict[str, dict[str, Row]]) -> None:
    declared, others = BrokerConfig.KEYS, keys_without_effect()
    ours = {name: our_row(key) for name, key in {**declared, **others}.items()}
    own = {name for name in ours if name.startswith("oncelog.")}
    assert ours.keys() - own == kafkas["broker"].keys() | THROTTLES
    wrong = {}
    for name, row in kafkas["broker"].items():
        expected, mine = row._asdict(), ours[name]._asdict()
        if name in others:  # DescribeConfigs does not tell it
            del expected["importance"]
        fields = tuple(field for field in expected if expected[field] != mine[field])
        if fields:
            wrong[name] = fields
    assert wrong == DIFFERENT
    assert set(wrong) <= OUR_DEFAULTS.keys()


def test_topic_keys(kafkas: dict[str, dict[str, Row]]) -> None:
    """What a topic's key defaults to is the broker's value, so the defaults are those of the broker's keys."""
    plain = TopicConfig.effective({}, BrokerConfig())
    ours = {
        name: our_row(key)._replace(
            default=plain.text(name) or "null" if key.synonyms else our_row(key).default
        )
        for name, key in TopicConfig.KEYS.items()
    }
    assert ours == {name: row._replace(mode=UpdateMode.READ_ONLY) for name, row in kafkas["topic"].items()}


def test_group_keys(kafkas: dict[str, dict[str, Row]]) -> None:
    ours = {name: our_row(key) for name, key in GroupConfig.KEYS.items()}
    assert ours == {name: row._replace(mode=UpdateMode.READ_ONLY) for name, row in kafkas["group"].items()}
