"""OffsetCommit and OffsetDelete write the same batches and records to ``__consumer_offsets`` as Kafka does."""

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import commit_body, wait_for_coordinator
from compat_tests.group_requests.offset_records import as_fields, batches_of
from oncelog.wire.stored.coordinator import decode_key, decode_value, encode_key, encode_value
from oncelog.wire.stored.groups import KEY_TYPES, VALUE_TYPES


def test_the_records_of_commits(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        topic_id = session.topic(name, 3)
        rows = {0: (5, 2, "note"), 1: (6, -1, None)}
        for version in (2, 6, 9):
            session.call_unobserved("OffsetCommit", version, commit_body(version, name, {name: rows}))
        session.call_unobserved("OffsetCommit", 10, commit_body(10, name, {topic_id: {2: 7}}))
        kept = commit_body(3, name, {name: {0: 8}}) | {"retention_time_ms": 1_000_000}
        session.call_unobserved("OffsetCommit", 3, kept)
        deleted = [{"name": name, "partitions": [{"partition_index": 0}, {"partition_index": 2}]}]
        session.call_unobserved("OffsetDelete", 0, {"group_id": name, "topics": deleted})
        left = list(batches_of(session, name))
        assert len(left) == 6
        for batch, found in left:
            session.observe("batch", {"attributes": batch.attributes, "leader_epoch": batch.leader_epoch})
            session.observe("producer", [batch.producer_id, batch.producer_epoch, batch.base_sequence])
            for record in found:
                assert record.key is not None
                key = decode_key(record.key, KEY_TYPES)
                assert key is not None
                assert encode_key(key) == record.key
                value = None
                if record.value is not None:
                    value = decode_value(record.value, VALUE_TYPES[key.API_KEY])
                    version = int.from_bytes(record.value[:2], "big")
                    assert encode_value(value, version) == record.value
                    session.observe("version", version)
                session.observe("record", [as_fields(key), as_fields(value), len(record.headers)])

    pair.compare(scenario)
