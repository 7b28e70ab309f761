"""`ClusterOptions`: the checked options of a controlled cluster. They can be pickled, for a child process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.nodes.configs import NODES_MAX, check_directories, controller_config, node_config
from oncelog.broker.control.options import BrokerOptions, config_texts
from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.seams.os_files import OsFileSystem

if TYPE_CHECKING:
    from oncelog.broker.control.controlled import Controlled

KIT_CONFIG = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # A test that kills a node should not wait nine seconds until the others know.
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
}
"""Defaults of the test kit for several nodes, added to those for one."""


@dataclass(frozen=True)
class ClusterOptions:
    """Options of ``count`` nodes. ``of_nodes`` hold for all of them, ``configs`` for one each."""

    count: int
    of_nodes: BrokerOptions
    configs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    encodes: bool = False
    """Whether messages between nodes travel as bytes."""

    def controlled(self) -> Controlled:
        """Return a cluster with these options."""
        from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster

        return ControlledCluster(self)


def cluster_options(
    nodes: int | Mapping[int, Mapping[str, object]], of_nodes: BrokerOptions
) -> ClusterOptions:
    """Return the options of as many nodes as are said, or of those whose own configurations are given.

    Raises InvalidArgumentError.
    """
    if isinstance(nodes, bool) or not isinstance(nodes, int | Mapping):
        raise InvalidArgumentError(
            f"nodes={nodes!r}: expected a number, or configurations by id: {{1: {{…}}, …}}"
        )
    configs: Mapping[int, Mapping[str, object]] = {} if isinstance(nodes, int) else nodes
    count = nodes if isinstance(nodes, int) else len(nodes)
    if not 1 <= count <= NODES_MAX:
        raise InvalidArgumentError(f"nodes={nodes!r}: expected 1 to {NODES_MAX}")
    if configs and {*configs} != {*range(1, count + 1)}:
        raise InvalidArgumentError(f"nodes={nodes!r}: expected the ids 1 to {count}")
    for name, given in (("config", of_nodes.config), *((f"nodes[{one}]", configs[one]) for one in configs)):
        if not isinstance(given, Mapping):
            raise InvalidArgumentError(f"{name}={given!r}: expected a mapping of Kafka's keys")
        for key in ("node.id", "broker.id", *(() if name == "config" else ("log.dir", "log.dirs"))):
            if key in given:
                raise InvalidArgumentError(
                    f"{name} {key}: several nodes have the ids 1, 2, 3, … and folders of these names; leave it out"
                )
    if of_nodes.origins is None:
        factors = {
            key: str(min(int(text), count)) if text == "3" else text for key, text in KIT_CONFIG.items()
        }
        of_nodes = replace(of_nodes, implied={**factors, **of_nodes.implied})
    options = ClusterOptions(
        count, of_nodes, {node_id: config_texts(own) for node_id, own in configs.items()}
    )
    try:
        config = of_nodes.broker_config()
        controller_config(config, count)
        for node_id in range(1, count + 1):
            node_config(config, count, node_id, options.configs.get(node_id, {}), "A" * 22)
        if of_nodes.data_dir is not None:
            check_directories(OsFileSystem(), of_nodes.data_dir, count)
    except (ConfigError, DataDirectoryError) as error:
        raise InvalidArgumentError(str(error)) from error
    return options
