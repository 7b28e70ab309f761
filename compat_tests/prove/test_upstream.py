"""`oncelog prove --upstream`: programs are proved on a real Kafka, through a proxy, and leave nothing behind there."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from compat_tests.brokers import SharedBrokers
from oncelog.broker.prove.disturbances import NODE_KINDS

pytestmark = pytest.mark.slow

HERE = pathlib.Path(__file__).parent
KEPT, BROKEN, USAGE = 0, 1, 2
PROOF_TIMEOUT_S = 600
TIMEOUT_S = 30
SHOP = ("--topic", "orders:3", "--topic", "receipts:3", "--input", f"orders={HERE / 'orders.jsonl'}")
"""The topics of the programs; all are of the group billing."""
STRAY = """
import os
from confluent_kafka import Producer

producer = Producer({{"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}})
producer.produce("{topic}", b"not for you")
producer.flush()
"""


@pytest.fixture
def kafka(brokers: SharedBrokers, upstream: str) -> str:
    """The address of a cluster that is not ours."""
    return brokers[upstream].bootstrap


@pytest.fixture
def admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka})


def command(kafka: str, program: str, *options: str) -> list[str]:
    return [
        *(
            sys.executable,
            "-m",
            "oncelog",
            "prove",
            "--upstream",
            kafka,
            *SHOP,
            "--output",
            "receipts",
            *options,
        ),
        *("--", sys.executable, str(HERE / "programs" / program)),
    ]


def prove(folder: pathlib.Path, kafka: str, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(kafka, program, *options),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PROOF_TIMEOUT_S,
        check=False,
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(pathlib.Path(oncelog.__file__).parent.parent)}


def verdict_of(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads(ended.stdout)
    return verdict


def topics(admin: AdminClient) -> set[str]:
    return {"orders", "receipts"} & set(admin.list_topics(timeout=TIMEOUT_S).topics)


def groups(admin: AdminClient) -> set[str]:
    return {one.group_id for one in admin.list_consumer_groups().result(TIMEOUT_S).valid}


def test_a_right_program_keeps_its_promise(tmp_path: pathlib.Path, kafka: str, admin: AdminClient) -> None:
    ended = prove(tmp_path, kafka, "confluent_transactions.py", "--budget", "6", "--json")
    assert ended.returncode == KEPT, ended
    verdict = verdict_of(ended)
    assert (verdict["verdict"], verdict["trials"]) == ("exactly once", 6)
    assert verdict["left_out"] == ["broker dies", "time out", *NODE_KINDS]
    assert verdict["basis"].endswith(f"; not on a real cluster: {', '.join(verdict['left_out'])}")
    assert topics(admin) == set()
    assert "billing" not in groups(admin)


def test_a_wrong_program_is_found_out_and_again(
    tmp_path: pathlib.Path, kafka: str, admin: AdminClient
) -> None:
    ended = prove(tmp_path, kafka, "offsets_before_work.py", "--budget", "8", "--json")
    assert ended.returncode == BROKEN, ended
    verdict = verdict_of(ended)
    assert verdict["verdict"] == "at most once"
    [number] = [at for at, one in enumerate(verdict["findings"]) if one["mistake"] == "offsets-before-work"]
    found = verdict["findings"][number]
    # The producer asks for its id after the first commit, or before.
    assert found["disturbances"][0]["rule"]["on"] in ("OffsetCommit", "InitProducerId")
    assert [one["kind"] for one in found["problems"]] == ["lost"]
    path = tmp_path / "oncelog-prove" / f"{number + 1}.json"
    again = subprocess.run(
        [sys.executable, "-m", "oncelog", "prove", "--json", "--again", str(path)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PROOF_TIMEOUT_S,
        check=False,
    )
    assert again.returncode == BROKEN, again
    [same] = verdict_of(again)["findings"]
    assert (same["step"], same["mistake"]) == (found["step"], found["mistake"])
    assert topics(admin) == set()
    assert "billing" not in groups(admin)


def test_a_topic_that_exists_is_refused(tmp_path: pathlib.Path, kafka: str, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("receipts", 1)])["receipts"].result(TIMEOUT_S)
    try:
        ended = prove(tmp_path, kafka, "confluent_transactions.py")
        assert (ended.returncode, ended.stdout) == (USAGE, "")
        [line] = ended.stderr.splitlines()
        assert line.startswith(f"oncelog: topic receipts exists in the cluster at {kafka}: ")
        assert topics(admin) == {"receipts"}
    finally:
        admin.delete_topics(["receipts"])["receipts"].result(TIMEOUT_S)


def test_a_group_that_exists_is_refused_and_stays(
    tmp_path: pathlib.Path, kafka: str, admin: AdminClient, name: str
) -> None:
    admin.create_topics([NewTopic(name, 1)])[name].result(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
    consumer.close()
    try:
        ended = prove(tmp_path, kafka, "offsets_before_work.py")
        assert (ended.returncode, ended.stdout) == (USAGE, "")
        [line] = ended.stderr.splitlines()
        assert line.startswith(f"oncelog: group billing exists in the cluster at {kafka}: ")
        asked = ConsumerGroupTopicPartitions("billing")
        found = admin.list_consumer_group_offsets([asked])["billing"].result(TIMEOUT_S)
        assert [(one.topic, one.offset) for one in found.topic_partitions] == [(name, 7)]
        assert topics(admin) == set()
    finally:
        admin.delete_consumer_groups(["billing"])["billing"].result(TIMEOUT_S)
        admin.delete_topics([name])[name].result(TIMEOUT_S)


def test_nothing_is_written_to_a_topic_that_is_not_the_proofs(
    tmp_path: pathlib.Path, kafka: str, admin: AdminClient, name: str
) -> None:
    admin.create_topics([NewTopic(name, 1)])[name].result(TIMEOUT_S)
    program = tmp_path / "stray.py"
    program.write_text(STRAY.format(topic=name))
    try:
        ended = prove(tmp_path, kafka, str(program))
        assert (ended.returncode, ended.stdout) == (USAGE, "")
        [line] = ended.stderr.splitlines()
        assert line.startswith(f"oncelog: topic {name} exists in the cluster at {kafka}: ")
        reader = Consumer({"bootstrap.servers": kafka, "group.id": name})
        assert reader.get_watermark_offsets(TopicPartition(name, 0), TIMEOUT_S) == (0, 0)
        reader.close()
        assert topics(admin) == set()
    finally:
        admin.delete_topics([name])[name].result(TIMEOUT_S)


def test_ctrl_c_leaves_nothing_behind(tmp_path: pathlib.Path, kafka: str, admin: AdminClient) -> None:
    process = subprocess.Popen(
        command(kafka, "confluent_transactions.py"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "classes of steps" in line, line
    process.send_signal(signal.SIGINT)  # a trial has begun
    output, errors = process.communicate(timeout=PROOF_TIMEOUT_S)
    assert "; interrupted" in output, errors
    assert topics(admin) == set()
    assert "billing" not in groups(admin)
