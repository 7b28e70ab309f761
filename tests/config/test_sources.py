"""Settings of files and options. The expected entries of .properties files are those of ``java.util.Properties``."""

import pytest

from oncelog.broker.config import sources
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.properties import parse_properties
from oncelog.broker.config.sources import Setting


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1", [("a", "1")]),
        ("a = 1 ", [("a", "1 ")]),
        ("a:1\nb 2\nc\t3\nd\f4\ne", [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "")]),
        ("  a \t= \f1", [("a", "1")]),
        ("a==1\nb=:1\nc := 1\nd  1=2", [("a", "=1"), ("b", ":1"), ("c", "= 1"), ("d", "1=2")]),
        ("# no\n! no\n  #no\n\n \t\na=#1!", [("a", "#1!")]),
        ("a\\=b=1\na\\:b=2\na\\ b=3\n\\#a=4", [("a=b", "1"), ("a:b", "2"), ("a b", "3"), ("#a", "4")]),
        ("a=1\\\n   2\\\r\n3", [("a", "123")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\\\\\nb=2", [("a", "1\\b=2")]),
        ("a=1\\\n\nb=2", [("a", "1"), ("b", "2")]),
        ("a=1\\\n#2", [("a", "1#2")]),
        ("# a\\\nb=2", [("b", "2")]),
        ("a=1\rb=2\r\nc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=\\t\\n\\r\\f\\q\\\\", [("a", "\t\n\r\fq\\")]),
        ("a=\\u00e9\\u0041x", [("a", "\u00e9Ax")]),
        ("a=\u00e9", [("a", "\u00e9")]),
        ("a=1\\", [("a", "1")]),
        ("=1", [("", "1")]),
        ("", []),
    ],
)
def test_properties(text: str, entries: list[tuple[str, str]]) -> None:
    assert [entry[:2] for entry in parse_properties(text)] == entries


def test_entries_know_the_line_they_begin_at() -> None:
    text = "# first\n\na=1\\\n  2\\\n  3\nb=4\r\nc=5\rd=6"
    assert list(parse_properties(text)) == [
        ("a", "123", 3),
        ("b", "4", 6),
        ("c", "5", 7),
        ("d", "6", 8),
    ]


@pytest.mark.parametrize("text", ["\\u12", "\\u12g4", "\\u 123", "\\u+123"])
def test_a_broken_unicode_escape_names_file_and_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^some/server.properties:2: malformed"):
        sources.from_file(f"a=1\nb={text}", "some/server.properties")


def test_the_last_of_two_in_a_file_wins_and_is_the_one_named() -> None:
    file = sources.from_file("num.partitions=1\nnum.partitions=x", "f")
    with pytest.raises(
        ConfigError, match=r"Invalid value x for configuration num.partitions: .*\[from f:2\]$"
    ):
        sources.build_config(file)
    assert (
        sources.build_config(sources.from_file("num.partitions=x\nnum.partitions=2", "f")).num_partitions == 2
    )


def test_options() -> None:
    assert sources.from_options(["a=1", " b =2=3", "c="]) == [
        Setting("a", "1", "-c"),
        Setting("b", "2=3", "-c"),
        Setting("c", "", "-c"),
    ]


@pytest.mark.parametrize("option", ["a", "", "=1", " =1"])
def test_an_option_without_a_key_or_value(option: str) -> None:
    with pytest.raises(ConfigError, match=r"^-c .*expected key=value$"):
        sources.from_options([option])


def test_later_sources_win() -> None:
    rows = [[Setting("num.partitions", str(count), f"source {count}")] for count in (1, 2, 3)]
    config = sources.build_config(*rows)
    assert (config.num_partitions, config.origins["num.partitions"]) == (3, "source 3")


def test_one_warning_names_all_keys_without_effect() -> None:
    file = sources.from_file("num.io.threads=8\nnum.partitions=2\nbackground.threads=5", "f")
    variables = {"KAFKA_QUEUED_MAX_REQUESTS": "5", "KAFKA_CFG_ZOOKEEPER_CONNECT": "z"}
    settings = sources.from_environment(variables).settings
    assert sources.warnings_of(sources.build_config(file, settings)) == [
        "keys of Kafka's that have no effect in oncelog: num.io.threads, background.threads [from f]; "
        "queued.max.requests, zookeeper.connect [from the environment]"
    ]
    assert sources.warnings_of(sources.build_config()) == []


def test_a_stock_servers_file_is_one_warning() -> None:
    """The keys of the server.properties that Kafka comes with."""
    text = """
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        num.network.threads=3
        num.io.threads=8
        log.dirs=/tmp/logs
        num.recovery.threads.per.data.dir=1
        share.coordinator.state.topic.replication.factor=1
        share.coordinator.state.topic.min.isr=1
        log.retention.hours=168
    """
    (warning,) = sources.warnings_of(sources.build_config(sources.from_file(text, "f")))
    assert warning.endswith(
        ": controller.quorum.bootstrap.servers, inter.broker.listener.name, num.network.threads, num.io.threads, "
        "num.recovery.threads.per.data.dir [from f]"
    )


def test_every_problem_is_collected() -> None:
    problems: list[str] = []
    file = sources.from_file("num.partitions=x\nnode.id=-7\nfoo=1\na=\\u12", "f", problems)
    options = sources.from_options(["nothing", "process.roles=controller", "also nothing"], problems)
    sources.build_config(file, options, problems=problems)
    assert problems == [
        r"f:4: malformed \uXXXX escape in 'a=\\u12'",
        "-c nothing: expected key=value",
        "-c also nothing: expected key=value",
        "Invalid value x for configuration num.partitions: Not a number of type INT [from f:1]",
        "Invalid value -7 for configuration node.id: Value must be at least 0 [from f:2]",
        "Unknown configuration foo (value 1) [from f:3]",
        "process.roles must have broker in it, that is what oncelog is [from -c]",
    ]
