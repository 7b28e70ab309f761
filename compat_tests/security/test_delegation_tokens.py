"""Delegation tokens: kafka-delegation-tokens prints the same on both targets; Java and franz-go log in by a token."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import re
from collections.abc import Iterator
from datetime import datetime

import pytest

from compat_tests.brokers import TARGETS
from compat_tests.control.programs import go_program, java_program
from compat_tests.differential import Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.logged_in_clients import Case, Program, Said, Way, java_settings, plain_settings
from compat_tests.security.sasl import PASSWORD, USER, SaslTarget
from compat_tests.security.test_configs_tool import FRAME
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields
from tests.common.jars import RealPartMissing, require, run_tool
from tests.common.recorded.recorder import Recorder

PROGRAMS = pathlib.Path(__file__).parent / "programs"
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
FOR_A_DAY = ("--create", "--max-life-time-period", "-1")
STEPS: dict[str, tuple[str, ...]] = {
    "none yet": ("--describe",),
    "made": (*FOR_A_DAY, "--renewer-principal", "User:bob", "--renewer-principal", "User:eve"),
    "made for an hour": ("--create", "--max-life-time-period", "3600000"),
    "made for another": (*FOR_A_DAY, "--owner-principal", "User:other"),
    "made with a renewer that is no user": (*FOR_A_DAY, "--renewer-principal", "Group:bob"),
    "those of no owner": ("--describe",),
    "one's own": ("--describe", "--owner-principal", "User:app"),
    "those of two owners": ("--describe", "--owner-principal", "User:eve", "--owner-principal", "User:other"),
    "those of an owner": ("--describe", "--owner-principal", "User:other"),
    "those of a renewer": ("--describe", "--owner-principal", "User:bob"),
    "those of nobody": ("--describe", "--owner-principal", "User:nobody"),
    "renewed": ("--renew", "--hmac", "made", "--renew-time-period", "-1"),
    "renewed for too long": ("--renew", "--hmac", "made for an hour", "--renew-time-period", "99999999999"),
    "renewed by who may not": ("--renew", "--hmac", "made for another", "--renew-time-period", "-1"),
    "renewed though unknown": ("--renew", "--hmac", "AAAA", "--renew-time-period", "-1"),
    "soon over": ("--expire", "--hmac", "made", "--expiry-time-period", "7200000"),
    "over": ("--expire", "--hmac", "made", "--expiry-time-period", "-1"),
    "over again": ("--expire", "--hmac", "made", "--expiry-time-period", "-1"),
    "ended by who may not": ("--expire", "--hmac", "made for another", "--expiry-time-period", "-1"),
    "what is left": ("--describe", "--owner-principal", "User:app"),
}
"""A step that stands for an HMAC made the token."""
HMAC = re.compile(r"[A-Za-z0-9+/]{86}==")
TOKEN_ID = re.compile(r"(?m)(?<=tokenId : )[\w-]{22}$|^[\w-]{22}(?= )")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
MECHANISM = "SCRAM-SHA-256"
REFUSED = (
    f"Authentication failed during authentication due to invalid credentials with SASL mechanism {MECHANISM}"
)
TIMEOUT_S = 60.0

Shown = dict[str, tuple[int, list[str], str]]


@pytest.fixture(scope="module")
def targets() -> Iterator[OnDemand[SaslTarget]]:
    with OnDemand(lambda name: SaslTarget(name).running()) as found:
        yield found


@pytest.fixture(scope="module")
def owners(targets: OnDemand[SaslTarget]) -> Iterator[OnDemand[Session]]:
    """By target a session of the user, who has logged in with a password."""

    @contextlib.contextmanager
    def make(name: str) -> Iterator[Session]:
        session = Session(targets[name].bootstrap, user=(USER, PASSWORD))
        yield session
        session.end()

    with OnDemand(make) as found:
        yield found


def hours(found: re.Match[str]) -> str:
    """A date as hours from now."""
    return f"{round((datetime.fromisoformat(found[0]) - datetime.now()).total_seconds() / 3600)} hours"


def settings_file(folder: pathlib.Path, settings: dict[str, str]) -> str:
    file = folder / f"{len(list(folder.iterdir()))}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(file)


def run_steps(target: SaslTarget, owner: Session, folder: pathlib.Path) -> Shown:
    """By step the exit code, the lines of standard output in order, and standard error without frames."""
    way = Way(target.bootstrap, "SASL_PLAINTEXT", mechanism="PLAIN", user=USER, password=PASSWORD)
    config = settings_file(folder, java_settings(way))
    hmacs: dict[str, str] = {}
    shown: Shown = {}
    for step, arguments in STEPS.items():
        words = [hmacs.get(word, word) for word in arguments]
        run = run_tool(
            TOOL, "--bootstrap-server", target.bootstrap, "--command-config", config, *words, check=False
        )
        if step.startswith("made") and (made := HMAC.search(run.stdout)):
            hmacs[step] = made[0]
            wait_for_token(owner, made[0])
        text = DATE.sub(hours, HMAC.sub("HMAC", TOKEN_ID.sub("ID", run.stdout)))
        errors = FRAME.sub("", run.stderr).replace(target.bootstrap, "ADDRESS")
        shown[step] = run.returncode, sorted(text.splitlines()), errors  # Kafka's tokens are in a hash table
    return shown


def wait_for_token(owner: Session, hmac: str) -> None:
    """Return once the broker knows the token: Kafka's learns of it after the response."""
    deadline = now_ms() + WAIT_MS
    while base64.b64decode(hmac) not in hmacs_of(owner):
        assert now_ms() < deadline, hmac


def hmacs_of(owner: Session) -> list[bytes]:
    response = owner.call_unobserved("DescribeDelegationToken", 3, {"owners": None})
    return [row["hmac"] for row in response["tokens"]]


def test_the_tool(
    answers: Recorder,
    targets: OnDemand[SaslTarget],
    owners: OnDemand[Session],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shown = answers.both(lambda name: run_steps(targets[name], owners[name], tmp_path_factory.mktemp(name)))
    for step in STEPS:
        assert shown["oncelog"][step] == shown["kafka"][step], step
    expected = shown["kafka"]
    assert "24 hours" in str(expected["made"][1])
    assert "168 hours" in str(expected["made"][1])
    assert "1 hours" in str(expected["renewed for too long"][1])
    counts = {"those of no owner": 0, "one's own": 3, "those of two owners": 2, "what is left": 2}
    for step, count in counts.items():
        assert f"Total number of tokens : {count}" in expected[step][1]
    assert {step for step in STEPS if expected[step][0]} == {
        "made with a renewer that is no user",
        "renewed by who may not",
        "renewed though unknown",
        "over again",
        "ended by who may not",
    }


@pytest.mark.parametrize("how", ["without a log-in", "by a token"])
def test_the_tool_is_refused(
    how: str,
    answers: Recorder,
    targets: OnDemand[SaslTarget],
    owners: OnDemand[Session],
    tmp_path: pathlib.Path,
) -> None:
    def run(name: str) -> tuple[int, str, str]:
        bootstrap = targets[name].broker.bootstrap
        way = Way(bootstrap, "PLAINTEXT")
        if how == "by a token":
            bootstrap = targets[name].bootstrap
            way = token_way(bootstrap, create(owners[name]))
        config = settings_file(tmp_path, java_settings(way))
        words = ("--bootstrap-server", bootstrap, "--command-config", config, *FOR_A_DAY)
        done = run_tool(TOOL, *words, check=False)
        return done.returncode, done.stdout, FRAME.sub("", done.stderr)

    found = answers.both(run)
    assert found["oncelog"] == found["kafka"]
    code, _, said = found["oncelog"]
    assert code == 1
    assert "Delegation Token requests are not allowed" in said


def create(owner: Session, lifetime_ms: int = -1) -> Fields:
    """Make a token. Returns the response once the broker knows the token."""
    asked: Fields = {"owner_principal_name": None, "renewers": [], "max_lifetime_ms": lifetime_ms}
    response: Fields = owner.call_unobserved("CreateDelegationToken", 3, asked)
    assert response["error_code"] == 0, response
    wait_for_token(owner, base64.b64encode(response["hmac"]).decode())
    return response


def token_way(address: str, token: Fields) -> Way:
    password = base64.b64encode(token["hmac"]).decode()
    return Way(address, "SASL_PLAINTEXT", "", "", MECHANISM, token["token_id"], password, is_token=True)


@pytest.fixture(scope="module", params=["java", "franz-go"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("program")
    try:
        if request.param == "java":
            program = Program(java_program(folder, PROGRAMS / "LoggedInClient.java"), java_settings)
        else:
            program = Program([*go_program(folder, PROGRAMS / "go"), request.param], plain_settings)
    except RealPartMissing as missing:
        require(str(missing))
    yield program
    program.close()


@pytest.mark.parametrize("target", TARGETS)
def test_a_client_logs_in_by_a_token_until_it_is_over(
    target: str,
    client: Program,
    targets: OnDemand[SaslTarget],
    owners: OnDemand[Session],
    request: pytest.FixtureRequest,
) -> None:
    """It commits a transaction and reads its record in a group; then the token is ended, and it is refused."""
    owner, address = owners[target], targets[target].bootstrap
    token = create(owner)
    topic = re.sub(r"\W+", "-", request.node.name)
    owner.topic(topic)
    way = token_way(address, token)
    assert client(Case(way, topic, "by a token", TIMEOUT_S)) == Said("by a token")
    ended = owner.call_unobserved(
        "ExpireDelegationToken", 2, {"hmac": token["hmac"], "expiry_time_period_ms": -1}
    )
    assert ended["error_code"] == 0, ended
    deadline = now_ms() + WAIT_MS
    while token["hmac"] in hmacs_of(owner):
        assert now_ms() < deadline
    refused = client(Case(way, topic, "too late", TIMEOUT_S))
    assert not refused.value
    assert REFUSED in refused.text, refused
