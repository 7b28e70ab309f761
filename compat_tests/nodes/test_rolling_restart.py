"""Each node is restarted in its turn, under load: no error reaches an idempotent producer, and groups go on."""

from compat_tests.nodes.group_reader import GroupReader
from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import create_topic
from compat_tests.nodes.writers import Writer, writing

ASSIGNMENTS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
PROTOCOLS = ("classic", "consumer")


def test_a_rolling_restart(kafka: Cluster, name: str, writers: dict[str, Writer]) -> None:
    topics = {client: create_topic(kafka, f"{name}-{client}", *ASSIGNMENTS) for client in writers}
    names = {client: topic.name for client, topic in topics.items()}
    groups = [GroupReader(kafka.bootstrap_servers, [*names.values()], protocol) for protocol in PROTOCOLS]
    try:
        with writing(kafka.bootstrap_servers, names, writers) as found:

            def wait_for_more() -> None:
                for client, one in found.items():
                    one.wait_for_more()
                    for group in groups:
                        group.wait_for(names[client], [*one.values])

            wait_for_more()
            for node in kafka.nodes.values():
                node.stop()
                wait_for_more()
                node.start()
                for topic in topics.values():
                    topic.wait_until_in_sync()
                wait_for_more()
        for client, topic in topics.items():
            # A writer's numbers have no gap where nothing failed.
            sent = [
                f"{found[client].values[0].partition('-')[0]}-{number}"
                for number in range(len(found[client].values))
            ]
            assert sorted(found[client].values) == sorted(sent), client
            logs = [
                [value.decode() for _, value in topic.records(row.leader, partition) if value]
                for partition, row in enumerate(topic.partitions)
            ]
            assert sorted(value for log in logs for value in log) == sorted(sent), client
            for log in logs:
                numbers = [int(value.rpartition("-")[2]) for value in log]
                assert numbers == sorted(numbers), client
            for group in groups:
                group.wait_for(topic.name, sent)
    finally:
        for group in groups:
            group.close()
