"""Reassignments, elections and log directories of replicas, on both targets."""

import pytest

from compat_tests.differential import Pair, Session
from tests.common.definitions import Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")


def test_list_partition_reassignments(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        for topics in (
            None,
            [],
            [{"name": name, "partition_indexes": [0]}],
            [{"name": f"{name}-x", "partition_indexes": [0]}],
        ):
            session.call(
                "ListPartitionReassignments", 0, {"topics": topics, "timeout_ms": 10000}, str(topics)
            )

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("AlterPartitionReassignments"))
def test_alter_partition_reassignments(pair: Pair, name: str, version: int) -> None:
    """Reassignments on a single node succeed or are refused, with Kafka's error messages."""

    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        session.topic(name, 2)
        unknown = {"name": f"{name}-x", "partitions": [{"partition_index": 0, "replicas": [1]}]}
        replica_lists = [[1], None, [], [2], [-1], [1, 1], [1, 2], [3, 1, 2], [2, 2], [1, 1, 2]]
        rows = [{"partition_index": 0, "replicas": replicas} for replicas in replica_lists]
        rows += [{"partition_index": index, "replicas": [1]} for index in (2, -1)]
        for change in (True, False) if version else (True,):
            fields: Fields = {"allow_replication_factor_change": change} if version else {}
            for note, topics in (
                ("none", []),
                ("no partition", [{"name": name, "partitions": []}]),
                ("several", [{"name": name, "partitions": rows}, unknown]),
                ("twice", [{"name": name, "partitions": rows[:1]}] * 2),
            ):
                values = {"timeout_ms": 10000, "topics": topics, **fields}
                session.call("AlterPartitionReassignments", version, values, f"{note}, {change}")

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("ElectLeaders"))
def test_elect_leaders(pair: Pair, name: str, version: int) -> None:
    """An election is not needed, or cannot be held, with Kafka's error messages."""

    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        session.topic(name, 2)
        mine = {"topic": name, "partitions": [0, 1, 2, -1, 0]}
        unknown = {"topic": f"{name}-x", "partitions": [0]}
        for kind in (0, 1, 2, -1) if version else (0,):
            fields: Fields = {"election_type": kind} if version else {}
            for topics in ([], [mine, unknown], [mine, mine], [{"topic": name, "partitions": []}]):
                values = {"timeout_ms": 10000, "topic_partitions": topics, **fields}
                session.call("ElectLeaders", version, values, f"{kind}, {topics}")
            response = session.call_unobserved(
                "ElectLeaders", version, {"timeout_ms": 10000, "topic_partitions": None, **fields}
            )
            rows = response.pop("replica_election_results")
            session.observe(f"{kind}, of all", [row for row in rows if row["topic"] == name])
            session.observe(f"{kind}, response", response)

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("AlterReplicaLogDirs"))
def test_alter_replica_log_dirs(pair: Pair, name: str, version: int) -> None:
    """With only one log directory, a replica may be moved to its own directory and to no other."""

    def scenario(session: Session) -> None:
        session.topic(name, 2)
        (directory,) = session.call_unobserved("DescribeLogDirs", 4, {"topics": []})["results"]
        here, elsewhere = directory["log_dir"], "/no/such/directory"

        def move(note: str, *moves: tuple[str, str, list[int]]) -> None:
            rows = [
                {"path": path, "topics": [{"name": topic, "partitions": indexes}]}
                for path, topic, indexes in moves
            ]
            response = session.call_unobserved("AlterReplicaLogDirs", version, {"dirs": rows})
            for row in response["results"]:
                row["partitions"].sort(key=lambda one: one["partition_index"])
            response["results"].sort(key=lambda row: row["topic_name"])
            session.observe(note, response)

        move("nothing")
        move("no partition", (here, name, []))
        move("here", (here, name, [1, 0]))
        move("elsewhere", (elsewhere, name, [0, 1]))
        move("relative", ("data", name, [0]), (f"{here}/", name, [1]))
        move("empty path", ("", name, [0]))
        move("unknown partitions", (here, name, [0, 2, -1]))
        move("unknown topics", (here, f"{name}-x", [0]), (here, "", [0]), (here, "a b", [0]))
        move("unknown topic elsewhere", (elsewhere, f"{name}-x", [0]))
        move("one name after another", (here, name, [0]), (elsewhere, name, [1]), (here, f"{name}-x", [7]))
        move("a name twice", (here, name, [0, 0]))
        move("the later directory counts", (elsewhere, name, [0]), (here, name, [0]))
        move("the later directory counts, again", (here, name, [0, 1]), (elsewhere, name, [0]))
        # A directory's name has at most 255 characters; during a move it ends in an id and "-future".
        for length in (213, 214):
            move(f"{length} characters", (here, "x" * length, [0]))
            move(f"{length} characters elsewhere", (elsewhere, "x" * (length - 1), [10]))

    pair.compare(scenario)
