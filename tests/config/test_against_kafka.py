"""Our declarations of keys against the tables that Kafka's own classes print for its documentation."""

import html
import json
import re
from typing import NamedTuple

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import OUR_DEFAULTS, ConfigKey, UpdateMode
from oncelog.broker.config.definitions_known import is_known_without_effect, keys_without_effect
from oncelog.broker.config.topic_config import TopicConfig
from tests.common import facts
from tests.harness.kafka_oracle import Oracle

pytestmark = [pytest.mark.slow, facts.needs(facts.HAS_KEYS_OF_4_4, "keys of 4.4")]

ROW = re.compile(r"<tr><th>([^<]*):</th><td>(.*?)</td></tr>")


# Types that differ without a visible difference, because the keys have no effect.
VALUES_NOT_CHECKED = (
    "non-empty list",
    "non-empty string",
    "non-null string",
    "(case insensitive) [ES256, RS256]",
)
THROTTLES = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


class Printed(NamedTuple):
    """One key as Kafka's documentation shows it."""

    name: str
    rows: dict[str, str]


def rows_of(page: str) -> bytes:
    """A line for each key: its name, and the rows of its table."""
    lines = []
    for item in page.split("<h4>")[1:]:
        name = re.match(r'<a id="([^"]+)">', item)
        assert name is not None, item[:200]
        rows = {html.unescape(label): html.unescape(cell) for label, cell in ROW.findall(item)}
        lines.append(json.dumps([name[1], rows]) + "\n")
    return "".join(lines).encode()


def printed(oracle: Oracle, main_class: str) -> dict[str, Printed]:
    lines = oracle.printed(main_class, rows_of).decode().splitlines()
    return {name: Printed(name, rows) for name, rows in map(json.loads, lines)}


@pytest.fixture(scope="module")
def broker_page(oracle: Oracle) -> dict[str, Printed]:
    return printed(oracle, "kafka.server.KafkaConfig")


@pytest.fixture(scope="module")
def topic_page(oracle: Oracle) -> dict[str, Printed]:
    return printed(oracle, "org.apache.kafka.storage.internals.log.LogConfig")


def valid_values(key: ConfigKey) -> str:
    """The key's limits as Kafka's documentation would put them."""
    if key.choices:
        return f"[{', '.join(key.choices)}]"
    if key.at_least is None:
        return ""
    return f"[{key.at_least},...{'' if key.at_most is None else f',{key.at_most}'}]"


def without_unit(shown: str) -> str:
    """``1073741824 (1 gibibyte)`` is ``1073741824``."""
    return re.sub(r" \([^)]*\)$", "", shown)


def differences(key: ConfigKey, theirs: Printed, default: str | None) -> list[str]:
    pairs = {
        "Type": key.type.name.lower(),
        "Importance": key.importance,
        "Default": {None: "null", "": '""'}.get(default, default),
        "Valid Values": valid_values(key),
    }
    shown = {label: theirs.rows[label] for label in pairs if label in theirs.rows}
    if "Default" in shown:
        shown["Default"] = without_unit(shown["Default"])
    if key.check is not None or key.name == "authorizer.class.name":  # which has two valid values
        del shown["Valid Values"]  # compared by what is refused, in test_topic_config
    return [
        f"{key.name} {label}: ours {pairs[label]!r}, Kafka's {cell!r}"
        for label, cell in shown.items()
        if pairs.get(label) != cell
    ]


def test_every_broker_key_of_kafka_is_known(broker_page: dict[str, Printed]) -> None:
    assert len(broker_page) > 300
    unknown = [
        name for name in broker_page if name not in BrokerConfig.KEYS and not is_known_without_effect(name)
    ]
    assert unknown == []


def test_declared_broker_keys_are_kafkas(broker_page: dict[str, Printed]) -> None:
    wrong = []
    for name, key in BrokerConfig.KEYS.items():
        if key.internal or name.startswith("oncelog."):
            assert name not in broker_page or name in THROTTLES
            continue
        theirs = broker_page[name]
        default = key.to_text(key.kafka_default)
        if theirs.rows["Default"] == "":
            assert name in OUR_DEFAULTS, f"{name} is required by Kafka: say why we have a default"
            del theirs.rows["Default"]
        wrong += differences(key, theirs, default)
        modes = {"read-only": UpdateMode.READ_ONLY, "per-broker": UpdateMode.PER_BROKER}
        if modes.get(theirs.rows["Update Mode"], UpdateMode.CLUSTER_WIDE) is not key.update_mode:
            wrong.append(f"{name}: its update mode is {theirs.rows['Update Mode']}")
    assert wrong == []


def test_the_table_of_keys_without_effect_is_kafkas(broker_page: dict[str, Printed]) -> None:
    wrong = []
    for name, key in keys_without_effect().items():
        if name not in broker_page:
            assert key.internal, name
            continue
        theirs = broker_page[name]
        pairs = {
            "Type": key.type.name.lower(),
            "Default": {None: "null", "": '""'}.get(key.to_text(key.default), key.to_text(key.default)),
            "Valid Values": valid_values(key),
            "Update Mode": key.update_mode.name.lower().replace("_", "-"),
        }
        shown = {label: theirs.rows[label] for label in pairs}
        shown["Default"] = without_unit(shown["Default"])
        if name in THROTTLES:  # dynamic ones, which Kafka shows no default of
            del shown["Default"]
        if shown["Valid Values"] in VALUES_NOT_CHECKED:
            del shown["Valid Values"]
        wrong += [
            f"{name} {label}: {pairs[label]!r}, {cell!r}"
            for label, cell in shown.items()
            if pairs[label] != cell
        ]
    assert wrong == []


def test_topic_keys_are_kafkas(topic_page: dict[str, Printed]) -> None:
    ours = {name: key for name, key in TopicConfig.KEYS.items() if not key.internal}
    assert sorted(ours) == sorted(topic_page)
    plain = TopicConfig.effective({}, BrokerConfig())
    wrong = []
    for name, key in ours.items():
        theirs = topic_page[name]
        wrong += differences(key, theirs, plain.text(name))
        first = key.synonyms[0][0] if key.synonyms else "null"
        if theirs.rows["Server Default Property"] != first:
            wrong.append(f"{name}: its broker key is {theirs.rows['Server Default Property']}")
    assert wrong == []
