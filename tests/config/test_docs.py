"""The tables of keys in docs/differences.md and docs/limits.md agree with the code."""

import pathlib

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import OUR_DEFAULTS
from oncelog.broker.config.topic_config import TopicConfig

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    text = (DOCS / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_defaults_is_the_codes() -> None:
    shown = {
        what.strip("`"): (theirs, ours, why) for what, theirs, ours, why in rows("differences.md", "Defaults")
    }
    expected = {}
    for name, (_, why) in OUR_DEFAULTS.items():
        key = BrokerConfig.KEYS[name]
        theirs = "(required)" if "required by Kafka" in why else f"`{key.to_text(key.kafka_default)}`"
        expected[name] = (theirs, f"`{key.to_text(key.default)}`", why)
    assert shown == expected


def test_topic_keys_without_effect_are_the_codes() -> None:
    text = (DOCS / "differences.md").read_text().split("\nTopic keys that are checked")[1].split("\n\n")[0]
    shown = {name for name in text.split("`")[1::2] if name in TopicConfig.KEYS}
    assert shown == {name for name, key in TopicConfig.KEYS.items() if not key.in_effect}


def test_the_limits_of_keys_are_the_codes() -> None:
    table = rows("limits.md", "Configuration keys")
    assert len(table) > 5
    for names, _, default, _ in table:
        name = names.split("`")[1]
        assert default.split("`")[1] == BrokerConfig().text(name), name


def test_every_key_of_our_own_is_in_the_docs() -> None:
    text = (DOCS / "limits.md").read_text() + (DOCS.parent / "README.md").read_text()
    for name in BrokerConfig.KEYS:
        if name.startswith("oncelog."):
            assert f"`{name}`" in text, name
