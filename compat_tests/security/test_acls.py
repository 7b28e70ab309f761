"""ACLs themselves on both targets: the requests, kafka-acls, what a group may see, and a directory that Kafka wrote."""

from typing import Any

import pytest

from compat_tests.brokers import TARGETS
from compat_tests.differential import Pair, Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import (
    ALLOW,
    ANY,
    CLIENT,
    CLUSTER,
    GROUP,
    LITERAL,
    TOPIC,
    TRANSACTIONAL_ID,
    Acls,
    acl_filter,
    creation,
    sorted_acls,
    until_described,
)
from tests.common.batches import WAIT_MS, batch, now_ms
from tests.common.definitions import Fields
from tests.common.jars import run_tool
from tests.common.recorded.recorder import Recorder

Admin = tuple[Session, Acls]
MATCH, PREFIXED, DENY = 2, 4, 2
READ, WRITE, DESCRIBE, ALL = 3, 4, 8, 2


@pytest.fixture(params=TARGETS)
def admin(request: pytest.FixtureRequest, admins: OnDemand[Admin]) -> Admin:
    """That of one target."""
    return admins[request.param]


def test_filters(authorized_pair: Pair, name: str) -> None:
    principal = f"User:{name}"
    rows = [
        (TOPIC, name, LITERAL, principal, "*", READ, ALLOW),
        (TOPIC, name, LITERAL, principal, "10.0.0.1", READ, DENY),
        (TOPIC, "*", LITERAL, principal, "*", DESCRIBE, ALLOW),
        (TOPIC, name[:-1], PREFIXED, principal, "*", WRITE, ALLOW),
        (TOPIC, name + "-more", PREFIXED, principal, "*", WRITE, ALLOW),
        (GROUP, name, LITERAL, principal, "*", ALL, ALLOW),
    ]
    filters = [
        acl_filter(kind, wanted, pattern, principal, host, operation, permission)
        for kind in (ANY, TOPIC, GROUP)
        for wanted in (None, name, "*", name[:-1], name + "-more-of-it", "")
        for pattern in (ANY, MATCH, LITERAL, PREFIXED)
        for host, operation, permission in (
            (None, ANY, ANY),
            ("*", ANY, ANY),
            (None, READ, DENY),
            (None, 99, ANY),
        )
    ]

    def scenario(session: Session) -> None:
        created = [creation(*row) for row in (*rows, rows[0])]
        session.call("CreateAcls", 3, {"creations": created}, "create")
        session.call("CreateAcls", 2, {"creations": created[:2]}, "create again")
        until_described(session, acl_filter(ANY, None, ANY, principal, None, ANY, ANY), len(rows))
        for one in filters:
            response = session.call_unobserved("DescribeAcls", 3, one)
            session.observe(f"describe {one}", (response["error_code"], sorted_acls(response)))
        for one in (filters[0], {**filters[0], "principal_filter": "User:nobody"}):
            for version in (1, 2):
                response = session.call_unobserved("DescribeAcls", version, one)
                session.observe(f"describe v{version}", (response["error_code"], sorted_acls(response)))
        deleted = [
            acl_filter(TOPIC, name, MATCH, principal, None, READ, ANY),
            acl_filter(TOPIC, name, MATCH, principal, None, ANY, ALLOW),
            acl_filter(ANY, None, ANY, principal, None, 99, ANY),
            acl_filter(99, None, ANY, principal, None, ANY, ANY),
            acl_filter(ANY, None, ANY, principal, None, ANY, ANY),
        ]
        response = session.call_unobserved("DeleteAcls", 3, {"filters": deleted})
        for row in response["filter_results"]:
            row["matching_acls"].sort(key=lambda acl: str(sorted(acl.items())))
        session.observe("delete", response)
        until_described(session, acl_filter(ANY, None, ANY, principal, None, ANY, ANY), 0)

    authorized_pair.compare(scenario)


def test_acls_that_cannot_be(authorized_pair: Pair) -> None:
    def scenario(session: Session) -> None:
        good = (TOPIC, "bad", LITERAL, "User:bad", "*", READ, ALLOW)
        for place, values in (
            (0, (8, 99, -1)),
            (1, ("",)),
            (2, (5, -1)),
            (3, ("bad", "", ":")),
            (5, (16, -1)),
            (6, (4, -1)),
        ):
            for value in values:
                row = creation(*good[:place], value, *good[place + 1 :])
                session.call("CreateAcls", 3, {"creations": [row]}, f"{place}: {value}")
        session.call("CreateAcls", 3, {"creations": [creation(CLUSTER, "other", *good[2:])]}, "cluster")
        everything = acl_filter(ANY, None, ANY, "User:bad", None, ANY, ANY)
        session.call("DeleteAcls", 3, {"filters": [everything]}, "nothing was created but for :")

    authorized_pair.compare(scenario)


def test_acls_for_any_kind(answers: Recorder, admins: OnDemand[Admin]) -> None:
    """Kafka's code does not expect what only filters may have, and fails for all ACLs of the request."""
    row = (TOPIC, "bad", LITERAL, "User:bad", "*", READ, ALLOW)
    for place, value in ((0, ANY), (2, ANY), (2, MATCH), (5, ANY), (6, ANY)):
        rows = [creation(*row[:place], value, *row[place + 1 :]), creation(TOPIC, "", *row[2:])]

        def codes(target: str, rows: list[Fields] = rows) -> list[int]:
            results = admins[target][0].call_unobserved("CreateAcls", 3, {"creations": rows})["results"]
            return [result["error_code"] for result in results]

        assert answers.both(codes) == {"kafka": [-1, -1], "oncelog": [42, 42]}


def test_the_most_acls_of_a_request(authorized_pair: Pair) -> None:
    def scenario(session: Session) -> None:
        rows = [creation(TOPIC, f"many-{at}", LITERAL, "User:many", "*", READ, ALLOW) for at in range(10_001)]
        everything = acl_filter(ANY, None, ANY, "User:many", None, ANY, ANY)
        for label, some in (("too many", rows), ("all but one", rows[:-1]), ("the last", rows[-1:])):
            response = session.call_unobserved("CreateAcls", 3, {"creations": some})
            session.observe(label, sorted({row["error_code"] for row in response["results"]}))
        until_described(session, everything, 10_001)
        for label, one in (
            ("too many", everything),
            ("one", {**everything, "resource_name_filter": "many-7"}),
            ("the others", everything),
        ):
            response = session.call_unobserved("DeleteAcls", 3, {"filters": [one]})
            (row,) = response["filter_results"]
            session.observe(f"delete {label}", (row["error_code"], len(row["matching_acls"])))

    authorized_pair.compare(scenario)


def kafka_acls(bootstrap: str, *arguments: str) -> list[str]:
    """The lines that kafka-acls prints, in one order: its own is that of hash tables."""
    run = run_tool(
        "org.apache.kafka.tools.AclCommand", "--bootstrap-server", bootstrap, *arguments, check=False
    )
    return [
        f"exit {run.returncode}",
        *sorted(line.strip() for line in run.stdout.splitlines() if line.strip()),
    ]


def test_kafka_acls(answers: Recorder, admins: OnDemand[Admin], name: str) -> None:
    """The tool prints the same beside both."""
    topic, user = name, f"User:{name}"
    only = ("--topic", topic, "--resource-pattern-type", "match")
    commands: list[tuple[str, ...]] = [
        (
            "--add",
            "--allow-principal",
            user,
            "--producer",
            "--idempotent",
            "--topic",
            topic,
            "--transactional-id",
            "i",
        ),
        ("--add", "--allow-principal", user, "--consumer", "--topic", topic, "--group", topic),
        (
            *("--add", "--deny-principal", user, "--deny-host", "10.0.0.1", "--operation", "Read"),
            *("--topic", topic[:-1], "--resource-pattern-type", "prefixed"),
        ),
        ("--add", "--allow-principal", user, "--operation", "TwoPhaseCommit", "--transactional-id", "i"),
        ("--add", "--allow-principal", "nobody", "--topic", topic),
        ("--list", *only),
        ("--list", "--principal", user),
        ("--remove", "--force", "--allow-principal", user, "--consumer", "--topic", topic, "--group", topic),
        ("--remove", "--force", "--topic", topic, "--resource-pattern-type", "any"),
        ("--list", *only),
    ]
    everything = acl_filter(ANY, None, ANY, user, None, ANY, ANY)

    def run(target: str) -> list[list[str]]:
        admin, _ = admins[target]
        found = [kafka_acls(admin.bootstrap, *command) for command in commands]
        admin.call_unobserved("DeleteAcls", 3, {"filters": [everything]})
        assert until_described(admin, everything, 0) == []
        return found

    printed = answers.both(run)
    for command, theirs, ours in zip(commands, printed["kafka"], printed["oncelog"], strict=True):
        assert theirs == ours, command
    assert any("operation=WRITE" in line for line in printed["oncelog"][0])


MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
NOT_ASKED = -(2**31)
"""Authorized operations that a request does not ask for."""


def heartbeat(session: Session, group: str, epoch: int, owned: list[Fields] | None, **more: object) -> Any:
    values = {
        "group_id": group,
        "member_id": MEMBER_ID,
        "member_epoch": epoch,
        "topic_partitions": owned,
        **more,
    }
    return session.call_unobserved("ConsumerGroupHeartbeat", 1, values)


def test_topics_that_the_member_of_a_group_may_know_of(admin: Admin, name: str) -> None:
    """A regular expression matches no other topic; and who may not know of a member's topics gets no description."""
    session, acls = admin
    shown, hidden, group = f"shown-{name}", f"hidden-{name}", f"group-regex-{name}"
    ids = {topic: session.topic(topic) for topic in (shown, hidden)}
    while session.call_unobserved("FindCoordinator", 3, {"key_type": 0, "key": group})["error_code"]:
        pass
    acls.change([(GROUP, group, READ), (TOPIC, shown, READ)])
    client = Session(session.bootstrap, CLIENT)
    joining = {"rebalance_timeout_ms": 10_000, "subscribed_topic_regex": f".*-{name}"}
    deadline = now_ms() + WAIT_MS
    response = heartbeat(client, group, 0, [], **joining)
    while response["error_code"] or not (response["assignment"] or {}).get("topic_partitions"):
        assert now_ms() < deadline, response
        assert response["error_code"] in (0, 14, 15, 16), response
        epoch = response["member_epoch"] if not response["error_code"] else 0
        response = heartbeat(client, group, epoch, None if epoch else [], **({} if epoch else joining))
    assert [row["topic_id"] for row in response["assignment"]["topic_partitions"]] == [ids[shown]]

    described = []
    for rights in ([(GROUP, group, DESCRIBE)], [(GROUP, group, DESCRIBE), (TOPIC, shown, DESCRIBE)]):
        acls.change(rights)
        described += client.call_unobserved("ConsumerGroupDescribe", 1, {"group_ids": [group]})["groups"]
    assert [row["authorized_operations"] for row in described] == [NOT_ASKED, NOT_ASKED]
    without, with_right = described
    assert (without["error_code"], without["members"]) == (29, [])
    assert (with_right["error_code"], len(with_right["members"])) == (0, 1)
    acls.change([(GROUP, group, READ)])
    heartbeat(client, group, -1, [])
    client.end()


def test_topics_of_a_transaction_that_the_client_may_know_of(admin: Admin, name: str) -> None:
    session, acls = admin
    shown, hidden, identifier = f"shown-{name}", f"hidden-{name}", f"id-{name}"
    for topic in (shown, hidden):
        session.topic(topic)
    begun: Fields = {"error_code": 15}
    deadline = now_ms() + WAIT_MS
    while begun["error_code"] in (14, 15, 16):
        assert now_ms() < deadline
        session.call_unobserved("FindCoordinator", 3, {"key_type": 1, "key": identifier})
        wanted = {"transactional_id": identifier, "transaction_timeout_ms": 60_000}
        begun = session.call_unobserved("InitProducerId", 4, wanted)
    added: Fields = {
        "v3_and_below_transactional_id": identifier,
        "v3_and_below_producer_id": begun["producer_id"],
        "v3_and_below_producer_epoch": begun["producer_epoch"],
    }
    added["v3_and_below_topics"] = [{"name": topic, "partitions": [0]} for topic in (shown, hidden)]
    response = session.call_unobserved("AddPartitionsToTxn", 3, added)
    rows = [
        row for topic in response["results_by_topic_v3_and_below"] for row in topic["results_by_partition"]
    ]
    assert [row["partition_error_code"] for row in rows] == [0, 0]
    acls.change([(TRANSACTIONAL_ID, identifier, DESCRIBE), (TOPIC, shown, WRITE)])
    client = Session(session.bootstrap, CLIENT)
    (state,) = client.call_unobserved("DescribeTransactions", 0, {"transactional_ids": [identifier]})[
        "transaction_states"
    ]
    assert [(row["topic"], row["partitions"]) for row in state["topics"]] == [(shown, [0])]
    client.end()


def test_a_fetch_that_waits_keeps_its_right(admin: Admin, name: str) -> None:
    """A right that is withdrawn holds for the next request (Kafka asks when the request comes)."""
    session, acls = admin
    session.topic(name)
    acls.change([(TOPIC, name, READ)])
    client = Session(session.bootstrap, CLIENT)
    client.call_unobserved("ApiVersions", 0)
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    request: Fields = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 15_000, "session_epoch": -1}
    request["topics"] = [{"topic": name, "partitions": rows}]
    correlation_id = client.connection.send("Fetch", 11, request)
    for _ in range(20):  # the Fetch has come before the change
        session.call_unobserved("ApiVersions", 0)
    acls.change([])
    assert session.produce(name, batch(1))["error_code"] == 0
    for expected in (0, 29):
        response = client.connection.receive("Fetch", 11, correlation_id)
        assert isinstance(response, dict)
        (row,) = response["responses"][0]["partitions"]
        assert row["error_code"] == expected
        if not expected:
            correlation_id = client.connection.send("Fetch", 11, request)
    client.end()
