"""The groups that tests use on a Kafka cluster: they are deleted after the test, as its topics are.

A group of which a member is left cannot be deleted. It is kept in mind, and the next test on the cluster tries again:
it would get records and offsets of the earlier test otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.metadata import Address
from oncelog.broker.control.cluster.groups import delete_groups, group, listed_groups
from oncelog.broker.control.cluster.share_groups import SHARE, share_group
from oncelog.broker.control.cluster.topics import POLL_S
from oncelog.broker.control.errors import BrokerFailedError, NotFoundError
from oncelog.broker.control.share_types import ShareGroupInfo
from oncelog.broker.control.types import GroupInfo
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.list_groups import ListedGroup

LEAVING_S = 3.0
"""How long members of an earlier test may take to leave their group, in seconds, before it is an error."""

ClusterAddresses: TypeAlias = tuple[Address, ...]

left: dict[ClusterAddresses, dict[str, str]] = {}
"""Groups that could not be deleted, with the test that has used each, by the addresses of their cluster."""


async def used_groups(
    client: ClusterClient, before: Collection[str], topics: Collection[str], named: Collection[str]
) -> list[str]:
    """Return the groups that a test has used, given those that there were before it, and what it has created and named.

    Of those that are new, these are the named ones, those that read one of its topics, and those with nothing: neither
    a member nor an offset.
    """
    found = []
    for group_id, row in (await listed_groups(client)).items():
        if group_id in before:
            continue
        try:
            read = set() if group_id in named else _topics_of(await _described(client, row))
        except (KafkaError, NotFoundError):  # it is gone, or not for this client
            continue
        if read is not None and (not read or not read.isdisjoint(topics)):
            found.append(group_id)
    return found


async def delete_left(client: ClusterClient, addresses: ClusterAddresses) -> None:
    """Delete the groups that could not be deleted before. Raises BrokerFailedError, which names those that have members
    for `LEAVING_S` from now on.
    """
    deadline = real_time.monotonic() + LEAVING_S
    while groups := left.get(addresses, {}):
        stay = await delete_groups(client, tuple(groups))
        left[addresses] = {group_id: groups[group_id] for group_id in stay}
        if stay and real_time.monotonic() > deadline:
            shown = [await _with_members(client, group_id, groups[group_id]) for group_id in stay]
            raise BrokerFailedError(
                f"groups of earlier tests cannot be deleted yet, because they have members: {', '.join(shown)}. Close "
                "consumers before their test ends; one that ended without leaving its group expires after its "
                "session.timeout.ms"
            )
        if stay:
            await real_time.sleep(POLL_S)


async def _described(client: ClusterClient, row: ListedGroup) -> GroupInfo | ShareGroupInfo:
    if row.group_type.lower() == SHARE:
        return await share_group(client, group_id=row.group_id)
    return await group(client, group_id=row.group_id)


def _topics_of(found: GroupInfo | ShareGroupInfo) -> set[str] | None:
    """Return the topics that a group reads; None for a group with members that read none."""
    read = set(found.partitions if isinstance(found, ShareGroupInfo) else found.committed)
    for member in found.members:
        read.update(member.subscription, member.assignment)
    return None if found.members and not read else read


async def _with_members(client: ClusterClient, group_id: str, test: str) -> str:
    """Return a group that an earlier test has left, with its members, in words."""
    row = (await listed_groups(client)).get(group_id)
    members = () if row is None else (await _described(client, row)).members
    who = ", ".join(f"client {member.client_id} at {member.host.lstrip('/')}" for member in members)
    return f"{group_id}{f' of {test}' if test else ''}{f' ({who})' if who else ''}"
