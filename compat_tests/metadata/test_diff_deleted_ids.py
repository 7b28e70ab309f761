"""Requests that name a topic by an id which is no more: that of a deleted topic, whose name another topic has now."""

import pytest

from compat_tests.differential import Pair, Session, produce_request
from compat_tests.group_requests.committed_offsets import commit_body, fetch_body, wait_for_coordinator
from tests.common.batches import WAIT_MS, batch, now_ms
from tests.common.definitions import ZERO_UUID, Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")

FETCHES_BY_ID = range(13, versions_of("Fetch")[-1] + 1)


def test_the_id_of_a_deleted_topic(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        old = session.topic(name, 2)
        session.produce(name, batch(3))
        session.call_unobserved("OffsetCommit", 10, commit_body(10, name, {old: {0: 2}}))
        body: Fields = {"topics": [{"name": None, "topic_id": old}], "timeout_ms": 15000}
        session.call("DeleteTopics", 6, body)
        asked: Fields = {"topics": [{"name": None, "topic_id": old}]}
        deadline = now_ms() + WAIT_MS
        while session.call_unobserved("Metadata", 12, asked)["topics"][0]["error_code"] == 0:
            assert now_ms() < deadline
        while session.call_unobserved("OffsetFetch", 9, fetch_body(9, (name, None)))["groups"][0]["topics"]:
            assert now_ms() < deadline, "the offset outlives its topic"
        new = session.topic(name, 2)
        session.observe("another id", new != old)
        for topic_id, note in ((old, "deleted"), (ZERO_UUID, "zero"), (new, "new")):
            response = session.call_unobserved(
                "Metadata", 12, {"topics": [{"name": None, "topic_id": topic_id}]}
            )
            if topic_id == ZERO_UUID:  # a difference on purpose: not UNKNOWN_SERVER_ERROR
                assert response["topics"][0].pop("error_code") in (-1, 42)
            session.observe(f"Metadata v12 {note}", response)
            session.call(
                "Metadata", 13, {"topics": [{"name": name, "topic_id": topic_id}]}, f"{note}, with the name"
            )
            session.call("Produce", 13, produce_request(topic_id, batch(1)), note)
            row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            for version in FETCHES_BY_ID:
                for epoch in (-1, 0):
                    fetch: Fields = {"max_wait_ms": 0, "max_bytes": 1 << 20, "session_epoch": epoch}
                    fetch["topics"] = [{"topic_id": topic_id, "partitions": [row]}]
                    response = session.call_unobserved("Fetch", version, fetch)
                    for topic in response["responses"]:
                        for one in topic["partitions"]:
                            one["records"] = bool(one["records"])
                    session.observe(f"Fetch v{version} {epoch} {note}", response)
            session.call("OffsetCommit", 10, commit_body(10, name, {topic_id: {0: 7}}), note)
            session.call("OffsetFetch", 10, fetch_body(10, (name, {topic_id: [0, 1]})), note)
        session.call("OffsetFetch", 9, fetch_body(9, (name, {name: [0]})), "by name")
        session.call("DeleteTopics", 6, {**body, "topics": [{"name": name, "topic_id": old}]}, "both")
        session.call("DeleteTopics", 6, body, "again")

    pair.compare(scenario)


def test_a_fetch_session_whose_topic_is_deleted_and_made_again(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        old = session.topic(name)
        session.produce(name, batch(3))
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        begin: Fields = {"max_wait_ms": 0, "max_bytes": 1 << 20, "session_epoch": 0}
        begin["topics"] = [{"topic_id": old, "partitions": [row]}]
        begun = session.call_unobserved("Fetch", 17, begin)
        body: Fields = {"topics": [{"name": None, "topic_id": old}], "timeout_ms": 15000}
        session.call("DeleteTopics", 6, body)
        asked: Fields = {"topics": [{"name": None, "topic_id": old}]}
        deadline = now_ms() + WAIT_MS
        while session.call_unobserved("Metadata", 12, asked)["topics"][0]["error_code"] == 0:
            assert now_ms() < deadline
        new = session.topic(name)
        session.produce(name, batch(1))
        more: Fields = {"max_wait_ms": 0, "max_bytes": 1 << 20, "session_id": begun["session_id"]}
        for epoch in (1, 2):
            found = session.call_unobserved("Fetch", 17, {**more, "session_epoch": epoch})
            rows = [
                [topic["topic_id"] == old, one["error_code"], bool(one["records"])]
                for topic in found["responses"]
                for one in topic["partitions"]
            ]
            session.observe(f"epoch {epoch}", [found["error_code"], rows])
        added = {**more, "session_epoch": 3, "topics": [{"topic_id": new, "partitions": [row]}]}
        found = session.call_unobserved("Fetch", 17, added)
        rows = sorted(
            [topic["topic_id"] == old, one["error_code"], bool(one["records"])]
            for topic in found["responses"]
            for one in topic["partitions"]
        )
        session.observe("with the new one", [found["error_code"], rows])

    pair.compare(scenario)
