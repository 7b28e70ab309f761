"""kafka-share-groups, run in the Java worker's JVM: both targets must make it print the same."""

import re
from collections.abc import Mapping

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.consumer_members import Topics
from compat_tests.groups.workers import Worker
from compat_tests.share.members import ShareMember, compare_share
from tests.common import facts
from tests.common.batches import batch

COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
pytestmark = pytest.mark.slow


class Tool:
    """ShareGroupCommand on one target. What it prints is observed, line by line and sorted."""

    def __init__(self, worker: Worker, session: Session) -> None:
        self._worker = worker
        self._session = session

    def run(self, *arguments: str) -> str:
        code, out = self._worker.tool(COMMAND, "--bootstrap-server", self._session.bootstrap, *arguments)
        host, _, port = self._session.bootstrap.rpartition(":")
        text = re.sub(rf"(localhost|{re.escape(host)}):{port}", "ADDRESS", out)
        lines = sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())
        self._session.observe(" ".join(arguments), [code, *lines])
        return out


def test_every_command(pair: Pair, name: str, workers: Mapping[str, Worker]) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        tool = Tool(workers["java"], session)
        group = ("--group", name)
        topics.make(name, 2)
        for partition in range(2):
            for _ in range(3):
                assert session.produce(name, batch(2), partition=partition)["error_code"] == 0
        tool.run("--describe", *group)
        tool.run("--delete", *group)
        tool.run("--delete-offsets", *group, "--topic", name)
        tool.run("--reset-offsets", *group, "--to-earliest", "--topic", name, "--dry-run")
        tool.run("--describe", *group)
        for where in ("--to-earliest", "--to-latest"):
            tool.run("--reset-offsets", *group, where, "--topic", name, "--execute")
            tool.run("--describe", *group, "--offsets", "--verbose")
        tool.run(
            "--reset-offsets", *group, "--to-datetime", "2020-01-01T00:00:00.000", "--all-topics", "--execute"
        )
        tool.run("--reset-offsets", *group, "--to-earliest", "--topic", f"{name}:1", "--execute")
        tool.run("--reset-offsets", *group, "--to-earliest", "--topic", "nowhere", "--execute")
        tool.run("--describe", *group, "--members")
        tool.run("--describe", *group, "--state")
        one = ShareMember(topics, name, "one", [name])
        one.join()
        one.heartbeat_until(lambda assigned: len(assigned.get(name, ())) == 2, "has all")
        for more in ("--offsets", "--members", "--state"):
            tool.run("--describe", *group, more)
            tool.run("--describe", *group, more, "--verbose")
        tool.run("--reset-offsets", *group, "--to-earliest", "--topic", name, "--execute")
        tool.run("--delete-offsets", *group, "--topic", name)
        tool.run("--delete", *group)
        one.leave()
        tool.run("--describe", *group, "--state")
        tool.run("--delete-offsets", *group, "--topic", name)
        tool.run("--delete-offsets", *group, "--topic", name)
        tool.run("--describe", *group)
        tool.run("--delete", *group)
        tool.run("--describe", *group)

    compare_share(pair, name, scenario)


def test_configurations_and_the_feature(pair: Pair, name: str, workers: Mapping[str, Worker]) -> None:
    """kafka-configs with the keys of share groups and their bounds; kafka-features with share.version."""

    def scenario(session: Session, topics: Topics) -> None:
        def run(main: str, *arguments: str) -> None:
            code, out = workers["java"].tool(main, "--bootstrap-server", session.bootstrap, *arguments)
            lines = sorted(line.strip() for line in out.splitlines() if "share" in line)
            session.observe(" ".join(arguments), [code, *lines])

        def configs(*arguments: str) -> None:
            entity = ("--entity-type", "groups", "--entity-name", name)
            run("org.apache.kafka.tools.ConfigCommand", *entity, *arguments)

        configs("--describe")
        for setting in (
            "share.session.timeout.ms=50000",
            "share.session.timeout.ms=1",
            "share.session.timeout.ms=60001",
            "share.heartbeat.interval.ms=4999",
            "share.heartbeat.interval.ms=15000",
            "share.record.lock.duration.ms=15000",
            "share.record.lock.duration.ms=14999",
            "share.record.lock.duration.ms=60001",
            "share.delivery.count.limit=11",
            "share.delivery.count.limit=2",
            "share.partition.max.record.locks=4001",
            "share.partition.max.record.locks=100",
            "share.auto.offset.reset=earliest",
            "share.auto.offset.reset=by_duration:PT1H",
            "share.auto.offset.reset=none",
            "share.isolation.level=read_committed",
            "share.isolation.level=nonsense",
            "share.renew.acknowledge.enable=false",
            "share.assignment.interval.ms=15001",
            "share.nonsense=1",
        ):
            configs("--alter", "--add-config", setting)
        configs("--describe")
        features = "org.apache.kafka.tools.FeatureCommand"
        for change in ("share.version=2", "share.version=0", "share.version=1"):
            for command in ("upgrade", "downgrade"):
                run(features, command, "--feature", change, "--dry-run")
        try:
            run(features, "downgrade", "--feature", "share.version=0")
        finally:
            run(features, "upgrade", "--feature", f"share.version={facts.SHARE_VERSION}")

    compare_share(pair, name, scenario)


def test_list(pair: Pair, name: str, workers: Mapping[str, Worker]) -> None:
    """Groups of other tests may be there, too."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        one = ShareMember(topics, name, "one", [name])
        one.join()
        for state in ((), ("--state",), ("--state", "stable"), ("--state", "empty"), ("--state", "nonsense")):
            arguments = ("--bootstrap-server", session.bootstrap, "--list", *state)
            code, out = workers["java"].tool(COMMAND, *arguments)
            lines = [line.split() for line in out.splitlines() if name in line or "rror" in line]
            session.observe(str(state), [code, *lines])
        one.leave()

    compare_share(pair, name, scenario)
