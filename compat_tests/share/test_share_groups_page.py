"""docs/how-to/share-groups.md: the commands and the worker under "Try one", and the commands about dead-letter queues,
run as they stand there.
"""

from __future__ import annotations

import pathlib
import re
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from compat_tests.differential import Session
from compat_tests.pages.recipes import ROOT
from compat_tests.share.dead_letter_queues import wait_until_done
from compat_tests.share.readers import Reader, set_group_config, share_topic, share_version
from tests.common import facts
from tests.common.jars import RealPartMissing, require, run_tool, tool_command
from tests.common.oncelog_process import DEADLINE_S, Process

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "how-to" / "share-groups.md").read_text()
TEXT = PAGE.partition("## Try one")[2].partition("\n## ")[0]
QUEUES = PAGE.partition("## Dead-letter queues")[2].partition("\n## ")[0]
SERVERS = "127.0.0.1:9092"
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-share-groups.sh": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
}
COMMANDS = re.findall(r"(?m)^    (oncelog .*)$", TEXT)
SET_UP = re.findall(r"(?m)^    (\S+\.sh) (.*)$", TEXT)
SHOWN = re.findall(r"`(kafka-share-groups\.sh) (.*?)`", TEXT)
WORKER = re.sub(r"(?m)^    ", "", TEXT[TEXT.index("    from ") : TEXT.index("\nThe first member")])
JOBS = ["press", "fold", "stack"]
REJECT = 3


def run(servers: str, script: str, arguments: str) -> str:
    """Run a tool of the page, at this broker. Returns its standard output."""
    words = arguments.replace(SERVERS, servers).split()
    if "--bootstrap-server" not in words:
        words = ["--bootstrap-server", servers, *words]
    return run_tool(TOOLS[script], *words).stdout


@pytest.fixture
def processes(tmp_path: pathlib.Path) -> Iterator[list[Process]]:
    """The processes to kill at the end of the test."""
    started: list[Process] = []
    yield started
    for process in started:
        process.close()


def test_try_one(tmp_path: pathlib.Path, processes: list[Process]) -> None:
    try:
        tool_command("none")
    except RealPartMissing as missing:
        require(str(missing))
    [command] = COMMANDS
    arguments = [*command.split()[1:], "--port", "0"]
    processes.append(broker := Process(tmp_path, *arguments))
    servers = broker.wait_ready()["address"]
    assert [script for script, _ in SET_UP] == ["kafka-topics.sh", "kafka-configs.sh"]
    for script, more in SET_UP:
        run(servers, script, more)
    producer = Producer({"bootstrap.servers": servers})
    for job in JOBS:  # before the first worker: what the group's setting is for
        producer.produce("jobs", job.encode())
    assert producer.flush(60) == 0
    worker_file = tmp_path / "worker.py"
    worker_file.write_text(WORKER.replace(SERVERS, servers))
    processes.append(worker := Process(tmp_path, "-u", str(worker_file), command=(sys.executable,)))
    assert worker.popen.stdout is not None
    deadline = threading.Timer(
        DEADLINE_S, worker.popen.kill
    )  # one that gets nothing would be waited for for ever
    deadline.start()
    try:
        done = [worker.popen.stdout.readline() for _ in JOBS]
    finally:
        deadline.cancel()
    assert done == [f"{job.encode()!r}\n" for job in JOBS], worker.stderr
    [(script, more)] = SHOWN
    shown = [line.split() for line in run(servers, script, more).splitlines() if line.strip()]
    assert shown[1][:3] == ["workers", "jobs", "0"], shown
    members = run(servers, script, f"{more} --members")
    assert "jobs:0" in members, members


@facts.needs(facts.HAS_DEAD_LETTER_QUEUES, "dead-letter queues")
def test_the_commands_about_dead_letter_queues(bootstrap: str, name: str) -> None:
    """On both targets."""
    commands = re.findall(r"(?m)^    (kafka-\S+\.sh) (.*)$", QUEUES)
    assert [script for script, _ in commands] == [
        "kafka-topics.sh",
        "kafka-configs.sh",
        "kafka-console-consumer.sh",
    ]
    [raise_level] = re.findall(r"`(kafka-features\.sh) (.*?)`", QUEUES)

    def run_it(command: tuple[str, str], more: str = "") -> str:
        script, arguments = command
        own = arguments.replace("dlq.jobs", f"dlq.{name}").replace("workers", name)
        return run(bootstrap, script, f"{own} {more}")

    session = Session(bootstrap)
    with share_version(session, 1):
        run_it(raise_level)
        run_it(commands[0])
        topic_id = share_topic(session, name, 2)
        run_it(commands[1])
        set_group_config(session, name, errors_deadletterqueue_topic_name=f"dlq.{name}")  # it waits for it
        reader = Reader(session, topic_id, "one", name)
        reader.begin()
        reader.say((0, 1, [REJECT]))
        wait_until_done(session, name)
        shown = run_it(commands[2], "--max-messages 2").splitlines()
    session.end()
    assert shown == [
        f"__dlq.errors.topic:{name},__dlq.errors.partition:0,__dlq.errors.offset:{offset},__dlq.errors.group:{name},"
        "__dlq.errors.delivery.count:1,__dlq.errors.message:Offset rejected by client.\tnull"
        for offset in range(2)
    ]
