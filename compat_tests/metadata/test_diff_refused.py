"""What is refused before it is counted or looked up, on both targets."""

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.consumer_members import Topics
from compat_tests.share.members import ShareMember
from compat_tests.transactions.wire import GROUP, Producer, find_coordinator

MOST = 10_000


def test_partitions_of_topics_that_are_refused_do_not_count(pair: Pair, name: str) -> None:
    """A request may ask for 10,000 partitions (``ControllerApis.createTopics``)."""

    def scenario(session: Session) -> None:
        def create(note: str, *rows: tuple[str, int]) -> None:
            topics = [{"name": one, "num_partitions": count, "replication_factor": 1} for one, count in rows]
            session.call(
                "CreateTopics", 7, {"topics": topics, "timeout_ms": 1000, "validate_only": True}, note
            )

        create("twice", (name, MOST), (name, MOST), (f"{name}-other", 1))
        create("of Kafka itself", ("__cluster_metadata", MOST), (name, 1))
        create("too many", (name, MOST), (f"{name}-other", 1))

    pair.compare(scenario)


def test_offsets_of_a_transaction_for_a_share_group(pair: Pair, name: str) -> None:
    """GROUP_ID_NOT_FOUND is told to old clients, too (``ShareGroup.validateOffsetCommit``)."""

    def scenario(session: Session) -> None:
        topics = Topics(session, name)
        find_coordinator(session, name, GROUP)
        topics.make(name)
        member = ShareMember(topics, name, "m", [name])
        member.heartbeat_unobserved(member_epoch=0, subscribed_topic_names=[name])
        producer = Producer(session, name)
        assert producer.init() == 0
        assert producer.add_offsets(name) == 0
        for version in (3, 5):
            for generation in (-1, 0):
                producer.commit_offset(name, name, 1, version, generation=generation)

    pair.compare(scenario)
