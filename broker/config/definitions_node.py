"""The broker's keys for the node and its network, and oncelog's own keys (Kafka: ``ServerConfigs``, ``KRaftConfigs``,
``SocketServerConfigs``, ``ReplicationConfigs``)."""

from __future__ import annotations

from oncelog.broker.config.definitions import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    PER_BROKER,
    STRING,
    KeyCollector,
    key,
)
from oncelog.broker.config.definitions_log import INT_MAX

PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


class NodeKeys(metaclass=KeyCollector):
    """Keys for the node's identity, and for creating and deleting topics."""

    __slots__ = ()

    node_id: int = key(INT, 1, "The number of this node.", at_least=0, importance=HIGH)
    broker_id: int = key(INT, -1, "The older name of node.id.", importance=HIGH)
    broker_rack: str | None = key(STRING, None, "The rack of this node.")
    process_roles: tuple[str, ...] = key(
        LIST,
        (),
        "The roles of this process; oncelog always has both.",
        choices=("broker", "controller"),
        importance=HIGH,
    )
    auto_create_topics_enable: bool = key(
        BOOLEAN, True, "Whether a Metadata request may create the topics that it names.", importance=HIGH
    )
    authorizer_class_name: str = key(
        STRING,
        "",
        "The class that decides who may do what: Kafka's StandardAuthorizer, or empty for nobody.",
        importance=LOW,
        of_proxies=True,
    )
    delete_topic_enable: bool = key(BOOLEAN, True, "Whether topics can be deleted.", importance=HIGH)
    num_partitions: int = key(
        INT, 1, "Partitions of a new topic if the request does not set a number.", at_least=1
    )
    default_replication_factor: int = key(
        INT, 1, "Replicas of a new topic's partitions if the request does not set a number."
    )


class ListenerKeys(metaclass=KeyCollector, of_proxies=True):
    """Keys for listeners and connections, and for how the use of clients is counted."""

    __slots__ = ()

    listeners: tuple[str, ...] = key(
        LIST,
        ("PLAINTEXT://:9092",),
        "The addresses to listen on, as NAME://HOST:PORT.",
        importance=HIGH,
        update=PER_BROKER,
    )
    advertised_listeners: tuple[str, ...] | None = key(
        LIST, None, "The addresses that clients connect to, as NAME://HOST:PORT.", importance=HIGH
    )
    listener_security_protocol_map: str = key(
        STRING,
        PROTOCOL_MAP,
        "The security protocol of each listener name, as NAME:PROTOCOL.",
        importance=LOW,
        update=PER_BROKER,
    )
    controller_listener_names: tuple[str, ...] = key(
        LIST, (), "The listeners of the controller; oncelog does not open them.", importance=HIGH
    )
    socket_send_buffer_bytes: int = key(
        INT,
        100 << 10,
        "Bytes of a connection's send buffer in the kernel; -1 is the system's default.",
        importance=HIGH,
    )
    socket_receive_buffer_bytes: int = key(
        INT,
        100 << 10,
        "Bytes of a connection's receive buffer in the kernel; -1 is the system's default.",
        importance=HIGH,
    )
    socket_request_max_bytes: int = key(
        INT,
        100 << 20,
        "Bytes of the largest request; a larger one closes the connection.",
        at_least=1,
        importance=HIGH,
    )
    socket_listen_backlog_size: int = key(INT, 50, "Connections that may wait to be accepted.", at_least=1)
    max_connections: int = key(
        INT, INT_MAX, "The most connections at the same time.", at_least=0, update=CLUSTER_WIDE
    )
    max_connections_per_ip: int = key(
        INT,
        INT_MAX,
        "The most connections from one address at the same time.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = key(
        STRING,
        "",
        "Other limits for some addresses, as HOST:COUNT, separated by commas.",
        update=CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = key(
        INT,
        INT_MAX,
        "The most connections that are accepted in a second.",
        at_least=0,
        update=CLUSTER_WIDE,
    )
    quota_window_num: int = key(INT, 11, "Samples that are kept of each client.", at_least=1, importance=LOW)
    quota_window_size_seconds: int = key(
        INT, 1, "Seconds of a sample of a client.", at_least=1, importance=LOW
    )
    controller_quota_window_num: int = key(
        INT, 11, "Samples that are kept of changes to cluster metadata.", at_least=1, importance=LOW
    )
    controller_quota_window_size_seconds: int = key(
        INT, 1, "Seconds of a sample of changes to cluster metadata.", at_least=1, importance=LOW
    )
    connections_max_idle_ms: int = key(
        LONG, 600_000, "Milliseconds after which the broker closes an idle connection."
    )
    queued_max_request_bytes: int = key(
        LONG,
        -1,
        "The most bytes of requests without a response, of all connections together; -1 is without limit.",
    )


class RequestKeys(metaclass=KeyCollector):
    """Limits of requests and responses."""

    __slots__ = ()

    unstable_api_versions_enable: bool = key(
        BOOLEAN,
        False,
        "Whether the broker serves unreleased versions of APIs.",
        importance=HIGH,
        internal=True,
    )
    telemetry_max_bytes: int = key(
        INT, 1048576, "Bytes of metrics that a client may push at once.", at_least=1, importance=LOW
    )
    max_incremental_fetch_session_cache_slots: int = key(
        INT, 1000, "The most fetch sessions at the same time.", at_least=0
    )
    fetch_max_bytes: int = key(INT, 55 << 20, "The most bytes of records in a Fetch response.", at_least=1024)
    max_request_partition_size_limit: int = key(
        INT, 2000, "The most partitions in a DescribeTopicPartitions response.", at_least=1
    )


OPTIMIZATIONS = (
    "oncelog_fast_produce_enable",
    "oncelog_response_templates_enable",
    "oncelog_splice_enable",
    "oncelog_reactor_enable",
    "oncelog_walk_readers_enable",
)
"""The keys of `OwnKeys` for shortcuts of a plain path; ``oncelog.optimizations.enable`` switches all of them off."""


class OwnKeys(metaclass=KeyCollector):
    """Keys that Kafka does not have. They are internal, so that DescribeConfigs shows Kafka's keys only."""

    __slots__ = ()

    oncelog_cluster_id: str | None = key(
        STRING, None, "The cluster id of a new data directory; random if not set.", internal=True
    )
    oncelog_nodes: int = key(
        INT, 1, "The number of nodes in this process; the option --nodes sets it.", at_least=1, internal=True
    )
    oncelog_sasl_oauthbearer_allowed_files: tuple[str, ...] = key(
        LIST,
        (),
        "Files with signing keys of tokens that may be read (Kafka: a property of the JVM with this name's end).",
        internal=True,
        of_proxies=True,
    )
    oncelog_sasl_oauthbearer_allowed_urls: tuple[str, ...] = key(
        LIST,
        (),
        "URLs of signing keys of tokens that may be read (Kafka: a property of the JVM with this name's end).",
        internal=True,
        of_proxies=True,
    )
    oncelog_client_metrics_enable: bool = key(
        BOOLEAN,
        False,
        "Whether clients may send their metrics (Kafka: whether a reporter takes them).",
        internal=True,
    )
    oncelog_fast_produce_enable: bool = key(
        BOOLEAN, True, "Whether a Produce that begins like an earlier one is not decoded.", internal=True
    )
    oncelog_response_templates_enable: bool = key(
        BOOLEAN,
        True,
        "Whether the connection of an append completes delayed fetches, from templates of their responses.",
        internal=True,
    )
    oncelog_splice_enable: bool = key(
        BOOLEAN,
        True,
        "Whether a proxy moves large frames through a kernel pipe.",
        internal=True,
        of_proxies=True,
    )
    oncelog_reactor_enable: bool = key(
        BOOLEAN,
        True,
        "Whether a proxy forwards small frames outside of Trio's tasks.",
        internal=True,
        of_proxies=True,
    )
    oncelog_walk_readers_enable: bool = key(
        BOOLEAN, True, "Whether records of usual shapes are checked by faster readers.", internal=True
    )
    oncelog_optimizations_enable: bool = key(
        BOOLEAN,
        True,
        "Whether oncelog takes the shortcuts that other keys allow; false forbids all of them.",
        internal=True,
        of_proxies=True,
    )
    oncelog_open_files_max: int = key(
        INT,
        16384,
        "The most open files of logs, but never more than three quarters of the process's limit.",
        at_least=1,
        importance=LOW,
        internal=True,
    )
