"""ACLs whose host is a network, on both targets: what one is, from which metadata.version on, and who is in it.

Both begin at 4.4-IV0, which has none, and are then upgraded.
"""

import functools
import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, checked
from compat_tests.differential import Pair, Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import (
    ALLOW,
    ANONYMOUS,
    ANY,
    CLIENT,
    LITERAL,
    TOPIC,
    acl_filter,
    creation,
    make_authorizing,
    sorted_acls,
    until_described,
)
from tests.common import facts
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields
from tests.common.jars import run_tool
from tests.common.recorded.recorder import Recorder

pytestmark = facts.needs(facts.HAS_NETWORKS_IN_ACLS, "networks in ACLs")

WITHOUT_NETWORKS, WITH_NETWORKS, NEWEST = 31, 32, 33
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
DESCRIBE, DENY = 8, 2
FEATURES = "org.apache.kafka.tools.FeatureCommand"


def running(folder: pathlib.Path, level: int) -> OnDemand[Broker]:
    """Brokers of a level of ``metadata.version``, with ``share.version`` 1."""
    levels = {**facts.LEVELS, "metadata.version": level, "share.version": 1}
    return OnDemand(functools.partial(make_authorizing, folder=folder, levels=levels))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDemand[Broker]]:
    with running(tmp_path_factory.mktemp("networks"), NEWEST) as found, checked(found["oncelog"]):
        yield found


@pytest.fixture
def pair(answers: Recorder, brokers: OnDemand[Broker]) -> Pair:
    return Pair(answers, lambda target: brokers[target].bootstrap)


@pytest.fixture
def pair_without_networks(answers: Recorder, tmp_path: pathlib.Path) -> Iterator[Pair]:
    with running(tmp_path, WITHOUT_NETWORKS) as found, checked(found["oncelog"]):
        yield Pair(answers, lambda target: found[target].bootstrap)


def update(session: Session, name: str, level: int, kind: int, *, validate_only: bool = False) -> Fields:
    row = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    values = {"feature_updates": [row], "timeout_ms": 15_000, "validate_only": validate_only}
    return dict(session.call("UpdateFeatures", 1, values, f"{name} {level} {kind} {validate_only}"))


def set_level(session: Session, name: str, level: int, kind: int = UPGRADE) -> None:
    """Kafka's broker learns of a level after the response."""
    assert update(session, name, level, kind)["error_code"] == 0
    software = {"client_software_name": "t", "client_software_version": "1"}
    deadline = now_ms() + WAIT_MS
    while True:
        rows = session.call_unobserved("ApiVersions", 4, software)["finalized_features"]
        if {row["name"]: row["max_version_level"] for row in rows}.get(name, 0) == level:
            return
        assert now_ms() < deadline, rows


def create(session: Session, host: str, name: str = "t", permission: int = ALLOW) -> int:
    row = creation(TOPIC, name, LITERAL, ANONYMOUS, host, DESCRIBE, permission)
    (result,) = session.call("CreateAcls", 3, {"creations": [row]}, f"{name} {host}")["results"]
    return int(result["error_code"])


def test_levels_of_metadata_version(pair_without_networks: Pair) -> None:
    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        unsupported, invalid = 35, 42
        assert create(session, "10.0.0.0/8") == unsupported
        assert create(session, "x/8") == unsupported
        assert create(session, "10.0.0.1") == 0
        set_level(
            session, "metadata.version", WITHOUT_NETWORKS - 1, SAFE_DOWNGRADE
        )  # no metadata changed there
        assert create(session, "10.0.0.0/8") == unsupported
        set_level(session, "metadata.version", WITH_NETWORKS)
        assert create(session, "10.0.0.0/8") == 0
        for kind in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            for validate_only in (True, False):
                update(session, "metadata.version", WITHOUT_NETWORKS, kind, validate_only=validate_only)
        update(session, "metadata.version", NEWEST, SAFE_DOWNGRADE)
        update(session, "metadata.version", NEWEST, UPGRADE, validate_only=True)
        set_level(session, "metadata.version", NEWEST)
        for level in (WITH_NETWORKS, WITHOUT_NETWORKS, WITHOUT_NETWORKS - 1):
            for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
                update(session, "metadata.version", level, kind)
        for level, kind in (
            (2, UPGRADE),
            (1, SAFE_DOWNGRADE),
            (0, SAFE_DOWNGRADE),
            (1, UPGRADE),
            (2, UPGRADE),
        ):
            set_level(session, "share.version", level, kind)
        update(session, "share.version", 1, UPGRADE)
        update(session, "share.version", 3, UPGRADE)
        assert create(session, "10.0.0.0/33") == invalid
        session.exact_error_messages = False  # Kafka supports lower levels, and says which
        update(session, "metadata.version", NEWEST + 1, UPGRADE)
        update(session, "metadata.version", 6, SAFE_DOWNGRADE)

    pair_without_networks.compare(scenario)


HOSTS = (
    *("10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0", "1.2.3.4/32", "001.2.3.4/08", "1.2.3.4/00", "10.0.0.0/33"),
    *(
        "10.0.0.0/99",
        "10.0.0.0/100",
        "256.0.0.0/8",
        "10.0.0/8",
        "10.0.0.0/",
        "/8",
        "/",
        "x/8",
        "10.0.0.0/8/8",
        "*/8",
    ),
    *("10.0.0.0/-1", " 10.0.0.0/8", "10.0.0.0/8 ", "1000.0.0.0/8", "10.0.0.0/255.0.0.0", "host.example/8"),
    *(
        "::/0",
        "2001:db8::/32",
        "2001:DB8::1/128",
        "2001:db8::/129",
        "2001:db8::/-1",
        "2001:db8::/+7",
        "2001:db8::/",
    ),
    *(
        "2001:db8/32",
        "::ffff:10.0.0.0/104",
        "::10.0.0.0/104",
        "1:2:3:4:5:6:7:8/64",
        "1:2:3:4:5:6:7:8:9/64",
        ":/8",
    ),
    *(
        "[2001:db8::]/32",
        "[2001:db8::/32",
        "fe80::1%1/64",
        "::1%/64",
        "2001:db8::%nothing/64",
        "::1/64/8",
        "2001:db8::/99999999999",
        "10.0.0.0:1/8",
        "g::/8",
        "",
        "*",
        "10.0.0.1",
        "anything",
        "2001:db8::1",
    ),
)


def test_what_is_a_network(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        for host in HOSTS:
            create(session, host, "networks")
        everything = acl_filter(TOPIC, "networks", LITERAL, None, None, ANY, ANY)
        created = session.call_unobserved("DescribeAcls", 3, everything)
        session.observe("created", sorted_acls(created))
        for host in ("10.0.0.0/8", "10.1.2.3", "10.0.0.0/33", "2001:0db8::/32"):  # a filter's host is a text
            by_host = acl_filter(TOPIC, "networks", LITERAL, None, host, ANY, ANY)
            session.observe(host, sorted_acls(session.call_unobserved("DescribeAcls", 3, by_host)))
            session.call("DeleteAcls", 3, {"filters": [by_host]}, f"delete {host}")
        session.call_unobserved("DeleteAcls", 3, {"filters": [everything]})
        until_described(session, everything, 0)

    pair.compare(scenario)


def test_who_is_in_a_network(pair: Pair) -> None:
    """The client is 127.0.0.2. What denies counts more, as with single hosts."""

    def scenario(session: Session) -> None:
        session.topic("seen")
        client = Session(session.bootstrap, CLIENT)
        for denying in ((), ("127.0.0.2/32",), ("127.0.0.4/31",)):
            for host in ("127.0.0.0/30", "127.0.0.3/31", "127.0.0.2/32", "127.0.0.0/31", "0.0.0.0/0", "::/0"):
                rows = [(host, ALLOW), *((one, DENY) for one in denying)]
                assert {create(session, where, "seen", permission) for where, permission in rows} == {0}
                everything = acl_filter(TOPIC, "seen", LITERAL, None, None, ANY, ANY)
                until_described(session, everything, len(rows))
                (topic,) = client.call_unobserved("Metadata", 12, {"topics": [{"name": "seen"}]})["topics"]
                session.observe(f"{host} but not {denying}", topic["error_code"])
                session.call_unobserved("DeleteAcls", 3, {"filters": [everything]})
                until_described(session, everything, 0)
        client.end()

    pair.compare(scenario)


def test_kafka_acls(answers: Recorder, brokers: OnDemand[Broker]) -> None:
    def printed(bootstrap: str, *arguments: str) -> list[str]:
        tool = "org.apache.kafka.tools.AclCommand"
        run = run_tool(tool, "--bootstrap-server", bootstrap, *arguments, check=False)
        return [
            str(run.returncode),
            *sorted(line.strip() for line in run.stdout.splitlines() if line.strip()),
        ]

    add = ("--add", "--allow-principal", "User:tool", "--operation", "Read", "--topic", "tool")
    commands = (
        (*add, "--allow-host", "10.0.0.0/8"),
        (*add, "--allow-host", "2001:db8::/32"),
        (*add, "--allow-host", "10.0.0.0/33"),
        ("--list", "--topic", "tool"),
        ("--remove", "--force", "--topic", "tool"),
    )
    found = answers.both(lambda name: [printed(brokers[name].bootstrap, *command) for command in commands])
    for command, theirs, ours in zip(commands, found["kafka"], found["oncelog"], strict=True):
        assert theirs == ours, command


def test_kafka_features(answers: Recorder, brokers: OnDemand[Broker]) -> None:
    """The tool says the same of both, whether a level is raised, lowered or refused."""
    commands = (
        ("downgrade", "--metadata", "4.4-IV1"),
        ("downgrade", "--feature", f"metadata.version={WITHOUT_NETWORKS}"),
        ("downgrade", "--feature", "share.version=1"),
        ("upgrade", "--feature", "share.version=2"),
        ("upgrade", "--feature", "share.version=3"),
        ("upgrade", "--metadata", "4.4-IV2"),
    )

    def said(name: str) -> list[tuple[int, str]]:
        servers = ("--bootstrap-server", brokers[name].bootstrap)
        runs = [run_tool(FEATURES, *servers, *command, check=False) for command in commands]
        return [(run.returncode, run.stdout) for run in runs]

    found = answers.both(said)
    for command, theirs, ours in zip(commands, found["kafka"], found["oncelog"], strict=True):
        assert theirs == ours, command
