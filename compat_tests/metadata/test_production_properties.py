"""A production configuration for several brokers, on one: more replicas are asked for than there are brokers."""

from collections.abc import Iterator

import pytest

from compat_tests.brokers import UNDISTURBED, Broker, make_broker
from compat_tests.differential import Pair, Session, produce_request
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.on_demand import OnDemand
from compat_tests.transactions.wire import Producer
from tests.common.batches import batch
from tests.common.definitions import Fields
from tests.common.recorded.recorder import Recorder

INVALID_REPLICATION_FACTOR = 38
UNKNOWN_TOPIC_OR_PARTITION = 3
PROPERTIES = {
    **UNDISTURBED,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Also of internal topics two replicas must be in sync, by default."""


@pytest.fixture(scope="module")
def own_brokers() -> Iterator[OnDemand[Broker]]:
    with OnDemand(lambda target: make_broker(target, PROPERTIES)) as found:
        yield found


@pytest.fixture
def own_pair(answers: Recorder, own_brokers: OnDemand[Broker]) -> Pair:
    return Pair(answers, lambda target: own_brokers[target].bootstrap)


def create(session: Session, name: str, factor: int, configs: dict[str, str] | None = None) -> None:
    rows = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    row = {"name": name, "num_partitions": 1, "replication_factor": factor, "configs": rows}
    session.call("CreateTopics", 7, {"topics": [row], "timeout_ms": 15000}, f"{factor} replicas")


@pytest.mark.parametrize("configs", [{}, {"min.insync.replicas": "5"}], ids=["broker", "topic"])
def test_acks_all_with_fewer_replicas_than_must_be_in_sync(
    own_pair: Pair, name: str, configs: dict[str, str]
) -> None:
    """No more have to be in sync than there are (``Partition.effectiveMinIsr``)."""

    def scenario(session: Session) -> None:
        create(session, name, 1, configs)
        session.wait_for_leaders(name, 1)
        # The same request again may take another path.
        for acks in (-1, -1, -1, 1):
            response = session.call("Produce", 9, produce_request(name, batch(1), acks=acks), f"acks {acks}")
            assert response["responses"][0]["partition_responses"][0]["error_code"] == 0
        producer = Producer(session, name)
        assert producer.init() == 0
        producer.add([(name, 0)])
        assert producer.send(name)["error_code"] == 0
        assert producer.end(commit=True)["error_code"] == 0
        wait_for_coordinator(session, name)
        offset: Fields = {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 3}]}
        committed = session.call(
            "OffsetCommit", 8, {"group_id": name, "generation_id_or_member_epoch": -1, "topics": [offset]}
        )
        assert committed["topics"][0]["partitions"][0]["error_code"] == 0
        for topic in (name, "__consumer_offsets", "__transaction_state"):
            asked = {"topics": [{"name": topic}], "response_partition_limit": 10}
            session.call("DescribeTopicPartitions", 0, asked, topic)
            resource: Fields = {"resource_type": 2, "resource_name": topic}
            resource["configuration_keys"] = ["min.insync.replicas"]
            session.call("DescribeConfigs", 4, {"resources": [resource], "include_synonyms": True}, topic)

    own_pair.compare(scenario)


def test_more_replicas_than_brokers(own_pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        for factor in (3, -1):
            create(session, f"{name}-{factor}", factor)

    own_pair.compare(scenario)


@pytest.mark.parametrize("version", [4, 13])
def test_topics_with_too_many_replicas_by_default_are_not_created_on_first_use(
    own_pair: Pair, name: str, version: int
) -> None:
    def scenario(session: Session) -> None:
        values = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        for _ in range(3):
            session.call("Metadata", version, values)
        invalid = session.call_unobserved("Metadata", version, {**values, "topics": [{"name": "a b"}]})
        session.observe("an invalid name", invalid["topics"])

    own_pair.compare(scenario)
