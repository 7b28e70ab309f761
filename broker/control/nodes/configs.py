"""The configurations of the nodes of a cluster in one process, and of their controller, from the one that is given.

DIR/1 … DIR/N     data directories of the nodes        ports: those that are given, and the next ones for each node
DIR/controller    that of the controller               no listener
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.options import PORT_MAX
from oncelog.broker.log.data_directory import META_PROPERTIES, DataDirectoryError
from oncelog.broker.network.network import CONTROLLER_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.seams.files import FileSystem

NODES_MAX = 100
"""The most nodes in one process."""
CONTROLLER_DIRECTORY = "controller"
CLIENTS = "clients"
"""All clients, as an end of what a test cuts."""


def node_config(
    config: BrokerConfig, nodes: int, node_id: int, own: Mapping[str, str], cluster_id: str
) -> BrokerConfig:
    """Return the configuration of a node, of which ``own`` keys are set for this node only. Raises ConfigError."""
    texts = {
        **config.texts,
        **_moved_ports(config, node_id - 1),
        **own,
        "node.id": str(node_id),
        "log.dirs": f"{config.data_dir}/{node_id}",
        "oncelog.nodes": str(nodes),
        "oncelog.cluster.id": cluster_id,
    }
    origins = {**config.origins, **dict.fromkeys(own, f"node {node_id}")}
    return BrokerConfig(texts, origins, is_consistent=not own)


def controller_config(config: BrokerConfig, nodes: int) -> BrokerConfig:
    """Return the configuration of the controller. Raises ConfigError."""
    texts = {
        **config.texts,
        "node.id": str(CONTROLLER_ID),
        "log.dirs": f"{config.data_dir}/{CONTROLLER_DIRECTORY}",
        "oncelog.nodes": str(nodes),
    }
    return BrokerConfig(texts, config.origins, is_consistent=True)


def check_directories(files: FileSystem, data_dir: str, nodes: int) -> None:
    """Raise DataDirectoryError if a data directory is that of one node, or of another number of nodes."""
    if files.exists(f"{data_dir}/{META_PROPERTIES}"):
        raise DataDirectoryError(
            f"{data_dir} is the data directory of one node: start it without --nodes, or take an empty directory"
        )
    found = 0
    while files.is_dir(f"{data_dir}/{found + 1}"):
        found += 1
    if found not in (0, nodes):
        raise DataDirectoryError(f"{data_dir} has the data of {found} nodes, not of {nodes}")


def _moved_ports(config: BrokerConfig, by: int) -> dict[str, str]:
    """Return the keys of listeners whose ports are those of the ``by``-th node after the first. Advertised ports follow
    each other, too, where the listeners' are free ones.
    """
    ports = [_port(text) for text in config.listeners]
    given = [port for port in ports if port] or [*filter(None, map(_port, config.advertised_listeners or ()))]
    stride = max(given) - min(given) + 1 if given else 0
    moved = {}
    for key, endpoints in (
        ("listeners", config.listeners),
        ("advertised.listeners", config.advertised_listeners or ()),
    ):
        if endpoints and by:
            moved[key] = ",".join(_moved(text, by * stride, key) for text in endpoints)
    return moved


def _port(endpoint: str) -> int:
    digits = endpoint.rpartition(":")[2]
    return int(digits) if digits.isdecimal() else 0


def _moved(endpoint: str, by: int, key: str) -> str:
    port = _port(endpoint)
    if not port:
        return endpoint
    if port + by > PORT_MAX:
        raise ConfigError(f"{key}: the ports of all nodes follow {endpoint}, and {port + by} is no port")
    return f"{endpoint.rpartition(':')[0]}:{port + by}"
