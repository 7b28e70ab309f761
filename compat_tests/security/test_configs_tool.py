"""kafka-configs and SCRAM users: it prints the same on both targets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, SharedBrokers, checked
from tests.common.jars import run_tool
from tests.common.recorded.recorder import Recorder

ALICE = ("--entity-type", "users", "--entity-name", "alice, a=b")
ALL_USERS = ("--entity-type", "users")
STEPS: dict[str, tuple[str, ...]] = {
    "nobody": ("--describe", *ALL_USERS),
    "a mechanism": (
        "--alter",
        *ALICE,
        "--add-config",
        "SCRAM-SHA-256=[iterations=8192,password=alice-secret]",
    ),
    "another mechanism": ("--alter", *ALICE, "--add-config", "SCRAM-SHA-512=[password=alice-secret]"),
    "both mechanisms": (
        "--alter",
        *ALICE,
        "--add-config",
        "SCRAM-SHA-256=[password=x],SCRAM-SHA-512=[password=x]",
    ),
    "another": (
        "--alter",
        *ALL_USERS,
        "--entity-name",
        "bob",
        "--add-config",
        "SCRAM-SHA-512=[password=bob-secret]",
    ),
    "one": ("--describe", *ALICE),
    "all": ("--describe", *ALL_USERS),
    "few iterations": ("--alter", *ALICE, "--add-config", "SCRAM-SHA-256=[iterations=4095,password=x]"),
    "many iterations": ("--alter", *ALICE, "--add-config", "SCRAM-SHA-256=[iterations=16385,password=x]"),
    "no password": ("--alter", *ALICE, "--add-config", "SCRAM-SHA-256=[iterations=8192]"),
    "a mechanism that is none": ("--alter", *ALICE, "--add-config", "SCRAM-SHA-1=[password=x]"),
    "deleted": ("--alter", *ALICE, "--delete-config", "SCRAM-SHA-256"),
    "deleted twice": ("--alter", *ALICE, "--delete-config", "SCRAM-SHA-256"),
    "after the deletion": ("--describe", *ALICE),
    "unknown": ("--describe", *ALL_USERS, "--entity-name", "nobody"),
}
FRAME = re.compile(r"(?m)^\s+(at |\.\.\. ).*\n?")

Shown = dict[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def own_brokers() -> Iterator[SharedBrokers]:
    shared = SharedBrokers()
    yield shared
    shared.close()


def run_steps(broker: Broker) -> Shown:
    """By step the exit code, standard output and standard error, without the frames of stack traces."""
    shown: Shown = {}
    for step, arguments in STEPS.items():
        run = run_tool(
            "org.apache.kafka.tools.ConfigCommand",
            "--bootstrap-server",
            broker.bootstrap,
            *arguments,
            check=False,
        )
        output, errors = (
            FRAME.sub("", text).replace(broker.bootstrap, "ADDRESS") for text in (run.stdout, run.stderr)
        )
        shown[step] = run.returncode, "\n".join(sorted(map(in_order, output.splitlines()))), errors
    return shown


def in_order(line: str) -> str:
    """Return the line with the mechanisms of a user in order. In Kafka they come, as the users do, in that of a hash
    table, which differs from one start to the next.
    """
    user, are, mechanisms = line.partition(" are ")
    return user + are + ", ".join(sorted(mechanisms.split(", ")))


def test_users(answers: Recorder, own_brokers: SharedBrokers) -> None:
    with checked(own_brokers["oncelog"]):
        shown = answers.both(lambda target: run_steps(own_brokers[target]))
    expected = shown["kafka"]
    assert shown["oncelog"] == expected
    assert "alice, a=b" in expected["all"][1]
    assert expected["few iterations"][0] == 1
