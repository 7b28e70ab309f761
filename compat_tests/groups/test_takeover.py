"""Brokers of both targets serve a data directory in turn: groups, offsets and static members are preserved."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping

from compat_tests.brokers import Broker, make_broker
from compat_tests.groups.group import Group
from compat_tests.groups.settings import BROKER_PROPERTIES, static_settings
from compat_tests.groups.workers import Worker
from tests.common import exchanges
from tests.common.jars import RealPartMissing, kafka_libs, require

DUMP = "org.apache.kafka.tools.DumpLogSegments"
# The broker, and how it ends. (test_kafkas_directory.py begins with a Kafka.)
CHAIN = [("oncelog", "stop"), ("kafka", "kill"), ("oncelog", "kill"), ("kafka", "stop")]


@contextlib.contextmanager
def running(target: str, folder: pathlib.Path) -> Iterator[Broker]:
    with make_broker(target, BROKER_PROPERTIES, folder) as broker:
        yield broker


@exchanges.GROUPS
def test_groups_are_preserved(
    tmp_path: pathlib.Path,
    make_group: Callable[..., Group],
    workers: Mapping[str, Worker],
) -> None:
    """With each broker the groups are unchanged; static members get their partitions back and go on reading."""
    try:
        kafka_libs()
    except RealPartMissing as missing:
        require(str(missing))
    empty: Group | None = None
    static: dict[str, Group] = {}
    before: dict[str, object] = {}
    for target, how in CHAIN:
        with running(target, tmp_path) as broker:
            if empty is None:
                empty = make_group(broker.bootstrap)
                static = {protocol: make_group(broker.bootstrap) for protocol in ("classic", "consumer")}
            for group in (empty, *static.values()):
                group.bootstrap = broker.bootstrap
                group.fill()
                group.ends = [end - 20 for end in group.ends]
                assert group.committed() == group.ends
                group.ends = [end + 20 for end in group.ends]
            for protocol, group in static.items():
                if protocol in before:
                    assert group.type_and_state()[0] == protocol
                    assert summary(group, protocol) == before[protocol]
                members = [group.join("java", static_settings(protocol, f"instance-{n}")) for n in range(2)]
                group.wait_until_shared(members)
                group.wait_until_read()
                before[protocol] = summary(group, protocol)
                group.leave()
            empty.join("confluent-kafka")
            empty.wait_until_read()
            empty.leave()
            assert empty.type_and_state() == ("classic", "empty")
            getattr(broker, how)()
        dump(workers["java"], tmp_path, [empty, *static.values()])


def summary(group: Group, protocol: str) -> object:
    """The members of a classic group; of the new protocol only the group's type."""
    return group.describe_members() if protocol == "classic" else group.type_and_state()[0]


def dump(worker: Worker, folder: pathlib.Path, groups: list[Group]) -> None:
    """Assert that DumpLogSegments reads every record of __consumer_offsets and finds the groups' commits."""
    files = sorted(folder.glob("__consumer_offsets-*/*.log"))
    assert files
    arguments = ["--offsets-decoder", "--files", ",".join(map(str, files))]
    code, out = worker.tool(DUMP, *arguments)
    assert code == 0
    assert "isvalid: false" not in out
    found: dict[tuple[str, int], int] = {}
    for line in out.splitlines():
        _, is_record, rest = line.partition(" key: ")
        if not is_record:
            continue
        key, _, payload = rest.partition(" payload: ")
        name = json.loads(key)
        if str(name["type"]) in ("0", "1") and payload.startswith("{"):
            data = name["data"]
            found[data["group"], data["partition"]] = json.loads(payload)["data"]["offset"]
    for group in groups:
        assert [found[group.group_id, at] for at in range(len(group.ends))] == group.ends
