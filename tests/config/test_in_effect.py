"""The product reads all keys that are declared to have an effect, and no others."""

import pathlib
import re

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.group_config import LIMITS
from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.security.settings import SSL_KEYS

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / "broker" / "config"

# What a class computes from keys: an attribute that others read, and the keys that rule it.
COMPUTED = {
    "segment_size": ("segment.bytes", "internal.segment.bytes"),
    "max_segment_ms": ("segment.ms", "max.compaction.lag.ms"),
    "compact": ("cleanup.policy",),
    "delete": ("cleanup.policy",),
    "data_dir": ("log.dirs", "log.dir"),
    "node_id": ("broker.id",),
    "connection_limits": ("max.connections.per.ip.overrides",),
}
# The code reads the first under a computed name, and refuses the others if they are on.
ALSO_READ = {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}
ALSO_READ |= {name for limits in LIMITS.values() for name in limits if name}
# Asked for by name, for one listener.
ALSO_READ |= {
    *SSL_KEYS,
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
    "connections.max.reauth.ms",
    "oncelog.optimizations.enable",
}
REFUSED = {"remote.storage.enable", "process.roles"}


@pytest.fixture(scope="module")
def read() -> set[str]:
    """Every attribute name that the product reads, outside of the definitions."""
    files = [
        path
        for name in ("broker", "coordinator")
        for path in (ROOT / name).rglob("*.py")
        if path.parent.parent.name != "client"  # its settings are a client's, of the same names
    ]
    texts = [path.read_text() for path in files if path.parent != CONFIG or path.name == "listeners.py"]
    by_name = {  # keys that each listener may have of its own
        name.replace(".", "_") for name in re.findall(r'"((?:sasl|oncelog)\.[a-z.]+)"', "\n".join(texts))
    }
    by_name.discard("sasl_jaas_config")  # for one mechanism only
    return by_name | set(re.findall(r"\.([a-z_]+)", "\n".join(texts)))


def names_read(keys: type[BrokerConfig] | type[TopicConfig], read: set[str]) -> set[str]:
    computed = {name for attribute, names in COMPUTED.items() if attribute in read for name in names}
    return computed | ALSO_READ | REFUSED | {name for name, key in keys.KEYS.items() if key.attribute in read}


def test_topic_keys(read: set[str]) -> None:
    names = names_read(TopicConfig, read)
    assert [name for name, key in TopicConfig.KEYS.items() if key.in_effect and name not in names] == []


def test_broker_keys(read: set[str]) -> None:
    of_topics = {
        synonym
        for name in names_read(TopicConfig, read) & set(TopicConfig.KEYS)
        if TopicConfig.KEYS[name].in_effect
        for synonym, _ in TopicConfig.KEYS[name].synonyms
    }
    names = names_read(BrokerConfig, read) | of_topics
    assert [name for name, key in BrokerConfig.KEYS.items() if key.in_effect and name not in names] == []


def test_keys_without_effect_are_not_read(read: set[str]) -> None:
    for keys in (BrokerConfig, TopicConfig):
        names = names_read(keys, read)
        assert [name for name, key in keys.KEYS.items() if not key.in_effect and name in names] == []
