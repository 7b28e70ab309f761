"""ACLs on the disk: a directory that Kafka wrote goes to oncelog and back, and what holds where there are none."""

import pathlib
import secrets

import pytest

from compat_tests.differential import Session, produce_request
from compat_tests.oncelog_server import Oncelog
from compat_tests.security.authorizing import (
    ALLOW,
    ANONYMOUS,
    ANY,
    AUTHORIZER,
    CLIENT,
    LITERAL,
    PROPERTIES,
    TOPIC,
    TRANSACTIONAL_ID,
    acl_filter,
    creation,
    format_directory,
    make_authorizing,
    until_described,
)
from oncelog.wire.stored.metadata import AccessControlEntryRecord
from tests.common import exchanges
from tests.common.batches import batch
from tests.common.jars import RealPartMissing, require
from tests.common.real_kafka import RealKafka

PREFIXED, DENY, WRITE = 4, 2, 4


def may_produce(session: Session, name: str) -> int:
    response = session.call_unobserved("Produce", 9, produce_request(name, batch(1)))
    return int(response["responses"][0]["partition_responses"][0]["error_code"])


@exchanges.METADATA
def test_a_directory_with_acls_goes_to_oncelog_and_back(tmp_path: pathlib.Path) -> None:
    """Kafka writes some, oncelog removes and adds some, Kafka has what is left; each has them in force."""
    folder = tmp_path
    data_dir = folder / "kafka"
    rows = [
        (TOPIC, "mine", LITERAL, ANONYMOUS, CLIENT, WRITE, ALLOW),
        (TOPIC, "gone", LITERAL, ANONYMOUS, CLIENT, WRITE, ALLOW),
        (TRANSACTIONAL_ID, "i", PREFIXED, "User:a", "10.0.0.1", 15, DENY),
    ]
    wanted = acl_filter(ANY, None, ANY, None, None, ANY, ANY)
    try:
        with make_authorizing("kafka", folder) as kafka:
            admin = Session(kafka.bootstrap)
            for name in ("mine", "gone"):
                admin.topic(name)
            created = admin.call_unobserved("CreateAcls", 3, {"creations": [creation(*row) for row in rows]})
            assert [row["error_code"] for row in created["results"]] == [0] * 3
            before = until_described(admin, wanted, 4 + len(rows))
            admin.end()
    except RealPartMissing as missing:
        require(str(missing))

    properties = dict(PROPERTIES)
    with Oncelog(properties, data_dir) as ours:
        admin, client = Session(ours.bootstrap), Session(ours.bootstrap, CLIENT)
        assert until_described(admin, wanted, len(before)) == before
        assert [may_produce(client, name) for name in ("mine", "gone")] == [0, 0]
        gone = acl_filter(TOPIC, "gone", LITERAL, None, CLIENT, WRITE, ALLOW)
        (result,) = admin.call_unobserved("DeleteAcls", 3, {"filters": [gone]})["filter_results"]
        assert len(result["matching_acls"]) == 1
        assert [may_produce(client, name) for name in ("mine", "gone")] == [0, 29]
        new = creation(TOPIC, "new", LITERAL, ANONYMOUS, CLIENT, WRITE, ALLOW)
        admin.call_unobserved("CreateAcls", 3, {"creations": [new]})
        after = until_described(admin, wanted, len(before))
        admin.end()
        client.end()
        assert ours.tracebacks == 0

    with RealKafka(properties, data_dir) as again:
        admin, client = Session(again.bootstrap), Session(again.bootstrap, CLIENT)
        admin.topic("new")
        admin.wait_for_leaders("mine", 1)
        assert until_described(admin, wanted, len(after)) == after
        assert [may_produce(client, name) for name in ("mine", "gone", "new")] == [0, 29, 0]
        admin.end()
        client.end()


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_without_any_acl(allowed: str, tmp_path: pathlib.Path) -> None:
    """`allow.everyone.if.no.acl.found` is asked where no ACL is about the resource, and super.users are let in."""
    format_directory(
        tmp_path / "data",
        [AccessControlEntryRecord(secrets.token_bytes(16), TOPIC, "other", 3, "User:a", "*", 3, 3)],
    )
    properties = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": allowed}
    with Oncelog(properties, tmp_path / "data") as ours:
        session = Session(ours.bootstrap)
        topics = {
            "topics": [
                {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("t", "other")
            ]
        }
        codes = [row["error_code"] for row in session.call_unobserved("CreateTopics", 7, topics)["topics"]]
        assert codes == ([0, 0] if allowed == "true" else [29, 29])
        if allowed == "true":
            assert [may_produce(session, name) for name in ("t", "other")] == [0, 29]
        session.end()
    with Oncelog({**properties, "super.users": f"User:a;{ANONYMOUS}"}, tmp_path / "data") as ours:
        session = Session(ours.bootstrap)
        topics["topics"] = [{"name": "u", "num_partitions": 1, "replication_factor": 1}]
        assert session.call_unobserved("CreateTopics", 7, topics)["topics"][0]["error_code"] == 0
        assert may_produce(session, "u") == 0
        session.end()
