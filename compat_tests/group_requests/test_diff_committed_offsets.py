"""FindCoordinator for groups, OffsetCommit, OffsetFetch and OffsetDelete on both targets, in groups without members."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import (
    Partitions,
    commit,
    commit_body,
    fetch,
    fetch_body,
    wait_for_coordinator,
)
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import ZERO_UUID, Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")

OTHER_UUID = bytes(range(16))


@pytest.mark.parametrize("version", versions_of("FindCoordinator"))
def test_find_coordinator(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, "g")
        for key_type in (0, 3, -1) if version >= 1 else (0,):
            for keys in (["g"], [""], ["\U0001f600"], ["g", "h", "g"], []):
                if version >= 4:
                    body: Fields = {"key_type": key_type, "coordinator_keys": keys}
                else:
                    body = {"key": (keys or ["x"])[0]} | ({"key_type": key_type} if version >= 1 else {})
                session.call("FindCoordinator", version, body, f"{key_type} {keys}")

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("OffsetCommit"))
def test_commit(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        group = f"{name}-v{version}"
        wait_for_coordinator(session, group)
        topic_id = session.topic(f"{name}-a", 3)
        other_id = session.topic(f"{name}-b", 1)
        by_id = version >= 10
        first: str | bytes = topic_id if by_id else f"{name}-a"
        second: str | bytes = other_id if by_id else f"{name}-b"
        missing: str | bytes = OTHER_UUID if by_id else "no-such-topic"
        all_of: dict[str | bytes, Partitions] = {
            first: {0: (5, 2, "note"), 2: (1 << 60, -1, None)},
            second: {0: 7},
        }
        commit(session, version, group, all_of, "first")
        commit(session, version, group, {first: {0: (4, 0, "")}}, "back")
        commit(session, version, group, {first: {1: -1, 0: -5}}, "negative")
        commit(session, version, group, {missing: {0: 1}, first: {1: 1, 3: 1, -1: 1}}, "not there")
        commit(session, version, group, {missing: {0: 1}}, "nothing there")
        commit(session, version, group, {first: {3: 1}}, "no partition there")
        commit(session, version, group, {}, "nothing")
        commit(session, version, group, {first: {}}, "no partitions")
        limit = "x" * 4096
        large = {first: {0: (1, 0, limit), 1: (2, 0, limit + "x"), 2: (3, 0, "\U0001f600" * 2048)}}
        commit(session, version, group, large, "large")
        commit(session, version, group, {first: {1: (2, 0, limit + "x")}}, "only too large")
        for generation in (0, 3, -2):
            for member in ("", "m"):
                for known in (group, f"{group}-new-{generation}-{member}"):
                    note = f"generation {generation} of {member!r} in {known}"
                    commit(session, version, known, {first: {0: 9}}, note, generation, member_id=member)
        if version >= 7:
            commit(session, version, group, {first: {0: 9}}, "instance", group_instance_id="i")
        commit(session, version, "", {first: {0: 9}}, "empty group")
        if not by_id:
            twice = commit_body(version, group, {first: {0: 20}, second: {0: 30}})
            twice["topics"] += commit_body(version, group, {first: {1: 21, 9: 1}, "gone": {1: 1}})["topics"]
            session.call("OffsetCommit", version, twice, "a topic twice")
        for known in (group, f"{group}-new-0-", f"{group}-new--2-m"):
            fetch(session, 9, (known, None), note=known)
        # Other tests have committed offsets in this group, too.
        fetch(session, 9, ("", {f"{name}-a": [0, 1, 2]}), note="empty group")

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("OffsetFetch"))
def test_fetch(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        group = f"{name}-v{version}"
        wait_for_coordinator(session, group)
        topic_id = session.topic(f"{name}-a", 3)
        by_id = version >= 10
        first: str | bytes = topic_id if by_id else f"{name}-a"
        missing: str | bytes = OTHER_UUID if by_id else "no-such-topic"
        offsets: dict[str | bytes, Partitions] = {topic_id: {0: (5, 2, "note"), 2: (7, -1, "")}}
        session.call_unobserved("OffsetCommit", 10, commit_body(10, group, offsets))
        topics: dict[str | bytes, list[int]] = {missing: [0, 1], first: [2, 0, 1, 7, -1, 0]}
        for stable in (False, True) if version >= 7 else (False,):
            fields: Fields = {"require_stable": stable} if version >= 7 else {}
            fetch(session, version, (group, topics), note="some", **fields)
            fetch(session, version, (group, {}), note="none", **fields)
            fetch(session, version, (group, {first: []}), note="no partitions", **fields)
            fetch(session, version, ("no-such-group", topics), note="no group", **fields)
            fetch(session, version, ("", topics), note="empty group", **fields)
            if version >= 2:
                fetch(session, version, (group, None), note="all", **fields)
                fetch(session, version, ("no-such-group", None), note="all of no group", **fields)
            if version >= 8:
                several = [(group, topics), ("no-such-group", None), (group, None), (group, {first: [0]})]
                fetch(session, version, *several, note="several", **fields)
                fetch(session, version, note="no groups", **fields)
        if version >= 9:
            body = fetch_body(version, (group, topics))
            body["groups"][0] |= {"member_id": "m", "member_epoch": 3}
            session.call("OffsetFetch", version, body, "of a member")
        if by_id:
            fetch(session, version, (group, {ZERO_UUID: [0]}), note="zero id")

    pair.compare(scenario)


def test_delete(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        topics: dict[str | bytes, Partitions] = {f"{name}-a": {0: 1, 1: 2, 2: 3}, f"{name}-b": {0: 4}}
        for topic in ("a", "b"):
            session.topic(f"{name}-{topic}", 3)

        def delete(group: str, rows: dict[str, list[int]], note: str) -> None:
            topic_rows = [
                {"name": topic, "partitions": [{"partition_index": one} for one in partitions]}
                for topic, partitions in rows.items()
            ]
            session.call("OffsetDelete", 0, {"group_id": group, "topics": topic_rows}, note)

        delete(name, {f"{name}-a": [0]}, "no group")
        delete("", {f"{name}-a": [0]}, "empty group")
        session.call_unobserved("OffsetCommit", 9, commit_body(9, name, topics))
        delete(name, {"gone": [0, 1], f"{name}-a": [0, 7, -1], f"{name}-b": [1]}, "some")
        delete(name, {f"{name}-a": [7]}, "no partition")
        delete(name, {f"{name}-a": [0]}, "again")
        delete(name, {}, "nothing")
        delete(name, {f"{name}-b": []}, "no partitions")
        fetch(session, 9, (name, None))
        delete(name, {f"{name}-a": [0, 1, 2], f"{name}-b": [0]}, "all")
        fetch(session, 9, (name, None))
        delete(name, {f"{name}-a": [0]}, "empty now")

    pair.compare(scenario)


def test_a_recreated_topic_has_no_offsets(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        session.topic(name)
        session.call_unobserved("OffsetCommit", 9, commit_body(9, name, {name: {0: 5}}))
        body = {"topics": [{"name": name, "topic_id": ZERO_UUID}], "timeout_ms": 15000}
        session.call_unobserved("DeleteTopics", 6, body)
        deadline = now_ms() + WAIT_MS
        body = fetch_body(9, (name, None))
        while session.call_unobserved("OffsetFetch", 9, body)["groups"][0]["topics"]:
            assert now_ms() < deadline, "the offset outlives its topic"
        fetch(session, 9, (name, {name: [0]}))
        session.topic(name)
        fetch(session, 9, (name, {name: [0]}))

    pair.compare(scenario)
