"""Counter.java, a stateful Kafka Streams application: its processes, and what it wrote."""

import pathlib
import subprocess
from collections import Counter, defaultdict

from confluent_kafka import Consumer, TopicPartition

from tests.common.jars import compile_java, maven_jars, tool_command
from tests.common.process import Lines

HERE = pathlib.Path(__file__).parent
PARTITIONS = 3


def counter_command(folder: pathlib.Path) -> list[str]:
    """The command line of an instance, before its arguments; it is compiled into `folder`. Raises RealPartMissing."""
    libs = maven_jars(HERE / "pom.xml", "kafka-streams", of_release=True)
    compile_java([HERE / "Counter.java"], folder, libs)
    # The jars that both folders have are equal, and their classes come from the archive of the first folder.
    return tool_command("Counter", class_path=[libs / "*", folder])


class Instance:
    """One process of the application, with its own state directory."""

    def __init__(self, command: list[str], bootstrap: str, state: pathlib.Path) -> None:
        self.process = subprocess.Popen(
            [*command, bootstrap, str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.lines = Lines(self.process.stderr)
        assert self.process.stdout.readline() == "started\n", self.lines.text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.lines.close()


def counts(bootstrap: str) -> dict[str, Counter[int]]:
    """By word, how often each of its counts is in ``out`` for a read_committed consumer."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    found: dict[str, Counter[int]] = defaultdict(Counter)
    try:
        consumer.assign([TopicPartition("out", partition, 0) for partition in range(PARTITIONS)])
        while (message := consumer.poll(1.0)) is not None:
            if message.error() is None:
                found[(message.key() or b"").decode()][int(message.value() or b"0")] += 1
    finally:
        consumer.close()
    return found
