"""Operations: start, stop and break the broker; create topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.control import new_topics
from oncelog.broker.control.options import topic_options
from oncelog.broker.control.types import BrokerInfo

if TYPE_CHECKING:
    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster


async def start(broker: Controlled) -> BrokerInfo:
    """Start the broker, with the data and at the address of its last run. Nothing happens if it runs."""
    async with broker.turns:
        await broker.start()
    return await info(broker)


async def stop(broker: Controlled) -> None:
    """Stop the broker cleanly. Nothing happens if it does not run."""
    async with broker.turns:
        await broker.stop()


async def kill(broker: Controlled) -> None:
    """End the broker as SIGKILL does: written data stay."""
    await broker.kill()


async def lose_power(broker: ControlledBroker | ControlledCluster) -> None:
    """End the broker as a loss of power does: data that it had not flushed are lost."""
    await broker.lose_power()


async def reset(broker: ControlledBroker | ControlledCluster) -> list[str]:
    """Make the broker as it was after its first start. Returns the client ids that were still connected."""
    async with broker.turns:
        connected = sorted({one.client_id for one in broker.connections if one.client_id})
        await broker.reset()
    return connected


async def create_topics(broker: ControlledBroker, *, topics: dict[str, object] | list[str]) -> None:
    """Create topics, given as `oncelog.Broker` takes them. Raises InvalidArgumentError for the first that cannot be
    created; none is created then.
    """
    wanted = topic_options(topics)
    new_topics.create_topics(broker.node, wanted, validate_only=True)
    new_topics.create_topics(broker.node, wanted)


async def snapshot(broker: ControlledBroker | ControlledCluster, *, path: str | None = None) -> bytes | None:
    """Write a snapshot of the broker, running or stopped, to the file ``path``; without a path return its content.

    Raises SnapshotError, NotRunningError before the first start.
    """
    from oncelog.broker.control import snapshots
    from oncelog.broker.seams.os_files import OsFileSystem

    taken = snapshots.take(broker)
    disk = OsFileSystem()
    content = await disk.offload(lambda: snapshots.encode(taken))
    if path is None:
        return content
    await disk.offload(lambda: snapshots.write_file(disk, path, content))
    return None


async def info(broker: Controlled) -> BrokerInfo:
    """Return what identifies the broker, and whether it runs."""
    return BrokerInfo(
        bootstrap_servers=broker.bootstrap_servers,
        cluster_id=broker.cluster_id,
        node_id=broker.node_id,
        seed=broker.seed,
        is_running=broker.is_running,
        listeners=broker.listening,
    )


async def log_lines(broker: Controlled) -> list[str]:
    """Return the latest log lines, newest last."""
    return broker.lines.latest()
