"""`open_member`: opens a node that is one of several, as `open_node` opens one that is alone."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.host.host import Host
from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.log.manager import LogManager
from oncelog.broker.metadata.replica import MetadataReplica
from oncelog.broker.network.network import Links
from oncelog.broker.node.member import Member
from oncelog.broker.node.node import Node, apply_broker_configs
from oncelog.wire.errors import DecodeError, KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.emulation.release import Release
    from oncelog.broker.net.server import BoundListener
    from oncelog.broker.network.network import Network
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.security.sasl.users import Users


@asynccontextmanager
async def open_member(
    config: BrokerConfig,
    listeners: Sequence[BoundListener],
    network: Network,
    *,
    files: FileSystem,
    clock: Clock,
    rng: random.Random,
    release: Release,
    users: Users | None = None,
    keeps_data: bool = True,
    on_loaded: Callable[[Node], None] = lambda node: None,
) -> AsyncIterator[Node]:
    """Open the data directory, join the cluster on ``network``, and open the partitions; yield the node, for
    `Node.run`. In the end flush every log, and write the clean-shutdown mark last. See `open_node`.

    Raises DataDirectoryError if the data directory cannot be used, or the controller refuses the node.
    """
    logs = LogManager(files.absolute_path(config.data_dir), files, clock, rng, config)
    logs.keeps_data = keeps_data
    with ExitStack() as opened:
        logs.start()
        metadata = MetadataReplica(
            clock,
            rng,
            config,
            cluster_id=logs.cluster_id,
            directory_id=logs.directory_id,
            supported=release.features,
        )
        opened.callback(lambda: logs.stop(metadata.broker_epoch))
        dynamic = DynamicBrokerConfig(config)
        member = Member(Links(network, config.node_id), metadata, logs, dynamic, clock)
        try:
            await member.join(listeners)
            apply_broker_configs(dynamic, metadata, logs)
            host = Host(
                dynamic,
                metadata,
                listeners,
                files=files,
                clock=clock,
                rng=rng,
                users=users,
                acls=(),
                background=logs.background,
            )
            logs.on_internal_error = host.note_internal_error
            node = Node(host, logs, release, member)
            on_loaded(node)
        except (KafkaError, DecodeError, OSError) as error:
            raise DataDirectoryError.of(logs.data_dir, error) from error
        yield node
