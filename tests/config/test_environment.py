"""Settings from environment variables, in the forms of Kafka's container images, and variables that are ignored."""

import pytest

from oncelog.broker.config import sources
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import resolve_listeners

# Compose files for Kafka with ZooKeeper and with KRaft, each with variables that only its image reads.
CONFLUENT_7 = {
    "KAFKA_BROKER_ID": "1",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_JMX_PORT": "9101",
    "KAFKA_HEAP_OPTS": "-Xmx512m",
    "KAFKA_LOG4J_LOGGERS": "kafka.controller=INFO",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL": "ERROR",
    "CONFLUENT_METRICS_ENABLE": "true",
}
WURSTMEISTER = {
    "KAFKA_ADVERTISED_HOST_NAME": "192.168.99.100",
    "KAFKA_ADVERTISED_PORT": "32181",
    "KAFKA_PORT": "9094",
    "KAFKA_BROKER_ID": "-1",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
    "KAFKA_CREATE_TOPICS": "Topic1:1:3,Topic2:1:1:compact",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true",
}
BITNAMI = {
    "ALLOW_PLAINTEXT_LISTENER": "yes",
    "KAFKA_CFG_NODE_ID": "3",
    "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
    "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
    "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "3@kafka:9093",
    "KAFKA_CFG_LOG_RETENTION_MS": "60000",
    "KAFKA_KRAFT_CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_CLIENT_USERS": "user",
    "KAFKA_CLIENT_PASSWORDS": "bitnami",
}
KUBERNETES = {
    "KAFKA_PORT": "tcp://10.96.0.17:9092",
    "KAFKA_PORT_9092_TCP": "tcp://10.96.0.17:9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.96.0.17",
    "KAFKA_SERVICE_HOST": "10.96.0.17",
    "KAFKA_SERVICE_PORT": "9092",
}
APPLICATION = {
    "KAFKA_USERNAME": "me",
    "KAFKA_PASSWORD": "hunter2",
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_AUTO_OFFSET_RESET": "earliest",
    "KAFKA_HOST_NAME": "kafka.example",
    "KAFKA_PORT": "29092",
    "KAFKA_BOOTSTRAP_SERVERS": "kafka.example:29092",
}


def configured(environment: dict[str, str], file: str = "") -> BrokerConfig:
    return sources.build_config(sources.from_file(file, "f"), sources.from_environment(environment).settings)


def listeners(environment: dict[str, str], file: str = "") -> list[str]:
    found, _ = resolve_listeners(configured(environment, file), lambda: "me")
    return [f"{listener.bind} > {listener.advertised}" for listener in found]


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_LISTENER_NAME_SASL___SSL_X__Y", "listener.name.sasl-ssl.x_y"),
        ("KAFKA_CFG_LOG_RETENTION_MS", "log.retention.ms"),
    ],
)
def test_names_of_variables(variable: str, name: str) -> None:
    assert sources.environment_key(variable) == name


def test_settings() -> None:
    environment = {
        "KAFKA_NUM_PARTITIONS": "5",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_OPTS": "",
        "PATH": "/bin",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    }
    config = configured(environment)
    assert dict(config.texts) == {"num.partitions": "5", "oncelog.cluster.id": "4L6g3nShT-eMCtK--X86sw"}
    assert config.origins["num.partitions"] == "environment variable KAFKA_NUM_PARTITIONS"
    assert sources.from_environment(environment).without_key == []


@pytest.mark.parametrize(
    ("environment", "without_key"),
    [
        (CONFLUENT_7, []),
        (WURSTMEISTER, []),
        (BITNAMI, ["KAFKA_CLIENT_PASSWORDS", "KAFKA_CLIENT_USERS"]),
        (KUBERNETES, sorted(KUBERNETES)),
        (APPLICATION, sorted(APPLICATION.keys() - {"KAFKA_BOOTSTRAP_SERVERS"})),
        ({"KAFKA_NUM_PARTITION": "5"}, ["KAFKA_NUM_PARTITION"]),
        ({"KAFKA_CFG_NUM_PARTITION": "5"}, ["KAFKA_CFG_NUM_PARTITION"]),
        # The key would do nothing, and cannot have that value: it is somebody else's.
        ({"KAFKA_BACKGROUND_THREADS": "30s", "KAFKA_NUM_IO_THREADS": "4"}, ["KAFKA_BACKGROUND_THREADS"]),
        ({"KAFKA_ADVERTISED_PORT": "tcp://10.96.0.17:9092"}, ["KAFKA_ADVERTISED_PORT"]),
    ],
)
def test_variables_without_a_key_are_returned_and_change_nothing(
    environment: dict[str, str], without_key: list[str]
) -> None:
    assert sorted(sources.from_environment(environment).without_key) == without_key
    # All that is left is a configuration.
    resolve_listeners(configured(environment), lambda: "me")


def test_an_applications_variables_do_not_move_the_broker() -> None:
    for environment in (APPLICATION, KUBERNETES):
        assert listeners(environment) == ["PLAINTEXT://127.0.0.1:9092 > PLAINTEXT://127.0.0.1:9092"]


def test_files_and_options_stay_strict() -> None:
    for source in (sources.from_file("num.partition=5", "f"), sources.from_options(["num.partition=5"])):
        with pytest.raises(ConfigError, match=r"^Unknown configuration num.partition \(value 5\)"):
            sources.build_config(source)


def test_an_invalid_value_is_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        configured({"KAFKA_NUM_PARTITIONS": "many", "KAFKA_CFG_LOG_ROLL_MS": "0"})
    assert caught.value.problems == (
        "Invalid value many for configuration num.partitions: Not a number of type INT "
        "[from environment variable KAFKA_NUM_PARTITIONS]",
        "Invalid value 0 for configuration log.roll.ms: Value must be at least 1 "
        "[from environment variable KAFKA_CFG_LOG_ROLL_MS]",
    )


def test_cfg_wins() -> None:
    for first, second in (("KAFKA_", "KAFKA_CFG_"), ("KAFKA_CFG_", "KAFKA_")):
        values = {"KAFKA_": "4", "KAFKA_CFG_": "5"}
        environment = {f"{prefix}NUM_PARTITIONS": values[prefix] for prefix in (first, second)}
        assert configured(environment).num_partitions == 5


def test_of_confluentinc() -> None:
    assert listeners(CONFLUENT_7) == [
        "PLAINTEXT://:29092 > PLAINTEXT://broker:29092",
        "PLAINTEXT_HOST://:9092 > PLAINTEXT_HOST://localhost:9092",
    ]
    assert configured(CONFLUENT_7).node_id == 1


def test_of_wurstmeister() -> None:
    assert listeners(WURSTMEISTER) == ["PLAINTEXT://:9094 > PLAINTEXT://192.168.99.100:32181"]
    config = configured(WURSTMEISTER)
    assert config.node_id == 1
    assert config.without_effect == ("zookeeper.connect",)


def test_of_bitnami() -> None:
    assert listeners(BITNAMI) == ["PLAINTEXT://:9092 > PLAINTEXT://kafka:9092"]
    config = configured(BITNAMI)
    assert (config.node_id, config.log_retention_ms) == (3, 60_000)
    assert config.oncelog_cluster_id == "4L6g3nShT-eMCtK--X86sw"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"KAFKA_ADVERTISED_HOST_NAME": "a"}, "PLAINTEXT://:9092 > PLAINTEXT://a:9092"),
        ({"KAFKA_ADVERTISED_PORT": "7"}, "PLAINTEXT://:9092 > PLAINTEXT://me:7"),
        (
            {"KAFKA_ADVERTISED_HOST_NAME": "a", "KAFKA_HOST_NAME": "10.0.0.1", "KAFKA_PORT": "5"},
            "PLAINTEXT://10.0.0.1:5 > PLAINTEXT://a:5",
        ),
        # As in Kafka 2, only if neither list is set.
        (
            {"KAFKA_ADVERTISED_HOST_NAME": "a", "KAFKA_LISTENERS": "PLAINTEXT://b:1"},
            "PLAINTEXT://b:1 > PLAINTEXT://b:1",
        ),
        (
            {"KAFKA_ADVERTISED_HOST_NAME": "a", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://c:2"},
            "PLAINTEXT://:2 > PLAINTEXT://c:2",
        ),
        (
            {"KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://c:2", "KAFKA_LISTENERS": "PLAINTEXT://b:1"},
            "PLAINTEXT://b:1 > PLAINTEXT://c:2",
        ),
    ],
)
def test_listeners_in_the_form_of_older_images(environment: dict[str, str], expected: str) -> None:
    assert listeners(environment) == [expected]


def test_listeners_of_an_older_file() -> None:
    file = "port=5\nadvertised.host.name=a\nzookeeper.connect=z:2181\nbroker.id=0"
    assert listeners({}, file) == ["PLAINTEXT://:5 > PLAINTEXT://a:5"]
    assert listeners({"KAFKA_LISTENERS": "PLAINTEXT://b:1"}, file) == ["PLAINTEXT://b:1 > PLAINTEXT://b:1"]
    # As in Kafka: keys that the file does not set have their defaults.
    assert listeners({}, "advertised.listeners=PLAINTEXT://a:5") == [
        "PLAINTEXT://127.0.0.1:9092 > PLAINTEXT://a:5"
    ]


def test_a_broken_list_of_advertised_listeners_is_named_once() -> None:
    config = configured({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://_{HOSTNAME_COMMAND}:9094"})
    with pytest.raises(ConfigError) as caught:
        resolve_listeners(config, lambda: "me")
    assert str(caught.value) == (
        "advertised.listeners=PLAINTEXT://_{HOSTNAME_COMMAND}:9094: Unable to parse "
        "PLAINTEXT://_{HOSTNAME_COMMAND}:9094 to a broker endpoint, expected NAME://HOST:PORT "
        "[from environment variable KAFKA_ADVERTISED_LISTENERS]"
    )
