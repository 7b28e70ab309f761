"""What ``oncelog certs`` prints for each client lets it in as it stands, by the certificate."""

from __future__ import annotations

import asyncio
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import aiokafka.admin
import aiokafka.helpers
import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient  # type: ignore[import-untyped,unused-ignore]

import oncelog
from compat_tests.control.programs import go_program, java_program, javascript_program
from compat_tests.security.client_programs import PROGRAMS
from compat_tests.security.logged_in_clients import Case, Program, Said, Way
from tests.common.jars import RealPartMissing, require

pytestmark = pytest.mark.slow

TOPIC = "orders"
TIMEOUT_S = 60
CLIENTS = {
    "Java": "java",
    "confluent-kafka,": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "kafkajs": "kafkajs",
    "franz-go, Sarama": "both of Go",
    "franz-go": "franz-go",
    "Sarama": "sarama",
}
"""The words before the lines of a client."""

KAFKAJS = """\
import { readFileSync } from "node:fs";
import { Kafka } from "kafkajs";

const kafka = new Kafka({
    brokers: [process.argv[2]],
    clientId: "kafkajs",
    logLevel: 0,
    retry: { retries: 1 },
    {lines}
});
const admin = kafka.admin();
await admin.connect();
console.log((await admin.listTopics()).join("\\n"));
await admin.disconnect();
"""
GO = """\
package main

import (
    "context"
    "crypto/tls"
    "crypto/x509"
    "fmt"
    "os"
    "strings"

    "github.com/IBM/sarama"
    "github.com/twmb/franz-go/pkg/kgo"
    "github.com/twmb/franz-go/pkg/kmsg"
)

func check(err error) {
    if err != nil {
        panic(err)
    }
}

func configured() *tls.Config {
    {lines}
    check(err)
    return config
}

func franz(config *tls.Config) {
    client, err := kgo.NewClient(
        kgo.SeedBrokers(os.Args[1]),
        kgo.ClientID("franz-go"),
        kgo.RequestRetries(1),
        {franz},
    )
    check(err)
    defer client.Close()
    listed, err := kmsg.NewPtrMetadataRequest().RequestWith(context.Background(), client)
    check(err)
    for _, topic := range listed.Topics {
        fmt.Println(*topic.Topic)
    }
}

func throughSarama(config *tls.Config) {
    made := sarama.NewConfig()
    made.ClientID = "sarama"
    made.Metadata.Retry.Max = 1
    Net := &made.Net
    {sarama}
    client, err := sarama.NewClient([]string{os.Args[1]}, made)
    check(err)
    defer client.Close()
    topics, err := client.Topics()
    check(err)
    fmt.Println(strings.Join(topics, "\\n"))
}

func main() {
    if config := configured(); os.Args[2] == "franz-go" {
        franz(config)
    } else {
        throughSarama(config)
    }
}
"""


class Printed(NamedTuple):
    """The lines by client, and who shows the certificate."""

    lines: dict[str, str]
    principal: str


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Printed, oncelog.Broker]]:
    """What the command prints, and a broker with the settings that it prints."""
    folder = tmp_path_factory.mktemp("certs")
    command = [sys.executable, "-m", "oncelog", "certs", str(folder / "made"), "--client", "app"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    for line in text.partition("\nClients. ")[2].splitlines()[2:]:
        words, lines = line[:25].strip(), line[25:]
        if words in CLIENTS:
            found[CLIENTS[words]] = last = []
        last.append(lines)
    assert [*found] == [*CLIENTS.values()]
    config = dict(re.findall(r"-c ([a-z.]+)=(\S+)", text))
    principal = re.findall(r"those that do are (.*)\.$", text, re.MULTILINE)[0]
    with oncelog.Broker(topics=[TOPIC], config={**config, "listeners": "SSL://127.0.0.1:0"}) as kafka:
        yield Printed({client: "\n".join(lines) for client, lines in found.items()}, principal), kafka


def run(command: list[str]) -> str:
    """Run a program that prints the topics. Returns them."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def filled(program: str, **lines: str) -> str:
    """The program with the lines in their places."""

    def put(found: re.Match[str]) -> str:
        return textwrap.indent(lines[found[2]], found[1])

    return re.sub(rf"( *)\{{({'|'.join(lines)})\}}", put, program)


def settings_of(lines: str) -> dict[str, str]:
    """The settings of lines with a key and a value each."""
    return dict(line.split("=", 1) for line in lines.splitlines())


def test_java(printed: tuple[Printed, oncelog.Broker], tmp_path: pathlib.Path) -> None:
    lines, kafka = printed
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **settings_of(lines.lines["java"])}
    try:
        command = java_program(tmp_path, PROGRAMS / "LoggedInClient.java")
    except RealPartMissing as missing:
        require(str(missing))
    program = Program(command, lambda _: settings)
    try:
        assert program(Case(Way("", ""), TOPIC, "value", TIMEOUT_S)) == Said("value")
    finally:
        program.close()
    assert kafka.wait_for("EndTxn").principal == lines.principal


def test_confluent_kafka(printed: tuple[Printed, oncelog.Broker]) -> None:
    lines, kafka = printed
    client = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": "confluent-kafka"}
    admin = AdminClient({**client, **settings_of(lines.lines["confluent-kafka"])})
    assert TOPIC in admin.list_topics(timeout=TIMEOUT_S).topics
    assert kafka.wait_for("Metadata", client_id="confluent-kafka").principal == lines.principal


def test_kafka_python(printed: tuple[Printed, oncelog.Broker]) -> None:
    lines, kafka = printed
    settings = eval(f"dict({','.join(lines.lines['kafka-python'].splitlines())})")
    client = {"bootstrap_servers": kafka.bootstrap_servers, "client_id": "kafka-python"}
    admin = KafkaAdminClient(**client, **settings)
    try:
        assert TOPIC in admin.list_topics()
    finally:
        admin.close()
    assert kafka.wait_for("Metadata", client_id="kafka-python").principal == lines.principal


def test_aiokafka(printed: tuple[Printed, oncelog.Broker]) -> None:
    lines, kafka = printed
    settings = eval(f"dict({lines.lines['aiokafka']})", {"aiokafka": aiokafka})

    async def topics() -> list[str]:
        client = {"bootstrap_servers": kafka.bootstrap_servers, "client_id": "aiokafka"}
        admin = aiokafka.admin.AIOKafkaAdminClient(**client, **settings)
        await admin.start()
        try:
            return list(await admin.list_topics())
        finally:
            await admin.close()

    assert TOPIC in asyncio.run(topics())
    assert kafka.wait_for("Metadata", client_id="aiokafka").principal == lines.principal


def test_kafkajs(printed: tuple[Printed, oncelog.Broker], tmp_path: pathlib.Path) -> None:
    lines, kafka = printed
    source = tmp_path / "source" / "list.mjs"
    source.parent.mkdir()
    source.write_text(filled(KAFKAJS, lines=lines.lines["kafkajs"]))
    try:
        command = javascript_program(tmp_path, source)
    except RealPartMissing as missing:
        require(str(missing))
    assert TOPIC in run([*command, kafka.bootstrap_servers]).split()
    assert kafka.wait_for("Metadata", client_id="kafkajs").principal == lines.principal


def test_go(printed: tuple[Printed, oncelog.Broker], tmp_path: pathlib.Path) -> None:
    lines, kafka = printed
    source = tmp_path / "source"
    source.mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copy(PROGRAMS / "go" / name, source)
    go = lines.lines
    program = filled(GO, lines=go["both of Go"], franz=go["franz-go"], sarama=go["sarama"])
    (source / "main.go").write_text(program)
    try:
        command = go_program(tmp_path, source)
    except RealPartMissing as missing:
        require(str(missing))
    for client in ("franz-go", "sarama"):
        assert TOPIC in run([*command, kafka.bootstrap_servers, client]).split()
        assert kafka.wait_for("Metadata", client_id=client).principal == lines.principal
