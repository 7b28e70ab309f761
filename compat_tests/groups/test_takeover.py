"""A data directory goes from one broker to the other: groups, offsets and static members are there as they were."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping

from compat_tests.brokers import Broker, make_broker
from compat_tests.groups.group import Group
from compat_tests.groups.settings import BROKER_PROPERTIES
from compat_tests.groups.test_group_restart import described_members
from compat_tests.groups.test_static import settings
from compat_tests.groups.workers import Worker
from compat_tests.real_kafka import RealPartMissing, kafka_libs, require

DUMP = "org.apache.kafka.tools.DumpLogSegments"
# Which broker, and its end. (What Kafka began is in test_kafkas_directory.py.)
CHAIN = [("oncelog", "stop"), ("kafka", "kill"), ("oncelog", "kill"), ("kafka", "stop")]


@contextlib.contextmanager
def running(target: str, folder: pathlib.Path) -> Iterator[Broker]:
    with make_broker(target, BROKER_PROPERTIES, folder) as broker:
        yield broker


def test_groups_go_over(
    tmp_path: pathlib.Path,
    make_group: Callable[..., Group],
    workers: Mapping[str, Worker],
) -> None:
    """Per broker: what the one before left is as it was; static members come back to theirs, and read on."""
    try:
        kafka_libs()
    except RealPartMissing as missing:
        require(str(missing))
    left: Group | None = None
    static: dict[str, Group] = {}
    before: dict[str, object] = {}
    for target, how in CHAIN:
        with running(target, tmp_path) as broker:
            if left is None:
                left = make_group(broker.bootstrap)
                static = {protocol: make_group(broker.bootstrap) for protocol in ("classic", "consumer")}
            for group in (left, *static.values()):
                group.bootstrap = broker.bootstrap
                group.fill()
                group.ends = [end - 20 for end in group.ends]
                assert group.committed() == group.ends
                group.ends = [end + 20 for end in group.ends]
            for protocol, group in static.items():
                if protocol in before:
                    assert group.listed()[0] == protocol
                    assert summary(group, protocol) == before[protocol]
                members = [group.join("java", settings(protocol, f"instance-{n}")) for n in range(2)]
                group.wait_shared(members)
                group.wait_read()
                before[protocol] = summary(group, protocol)
                group.leave()
            left.join("confluent-kafka")
            left.wait_read()
            left.leave()
            assert left.listed() == ("classic", "empty")
            getattr(broker, how)()
        dump(workers["java"], tmp_path, [left, *static.values()])


def summary(group: Group, protocol: str) -> object:
    """What the broker tells of the group's members; of the new protocol only its type."""
    return described_members(group) if protocol == "classic" else group.listed()[0]


def dump(worker: Worker, folder: pathlib.Path, groups: list[Group]) -> None:
    """DumpLogSegments reads every record of __consumer_offsets, and finds these groups' commits."""
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
