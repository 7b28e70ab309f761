"""The proxy, and nodes behind it, are killed and started again: nothing acknowledged is lost, and clients go on."""

import json
import subprocess
import threading
from collections import Counter

from compat_tests.differential import make_topic
from compat_tests.nodes.group_reader import GroupReader
from compat_tests.nodes.oncelog_cluster import AnyCluster
from compat_tests.nodes.writers import CLIENTS, Acknowledged, writing
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from compat_tests.transactions.reader import values
from tests.common.jars import tool_command
from tests.common.threads import join

KILLED = (1, 2)
PARTITIONS = 3


def java(bootstrap: str, topic: str, found: Acknowledged, stop: threading.Event) -> None:
    """Kafka's VerifiableProducer, which does not repeat what fails."""
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "100", "--acks", "-1")
    process = subprocess.Popen(
        tool_command("org.apache.kafka.tools.VerifiableProducer", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def end() -> None:
        stop.wait()
        process.terminate()

    ender = threading.Thread(target=end, daemon=True)
    ender.start()
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            if row["name"] == "producer_send_success":
                found.add(row["value"])
    join(ender)


def test_the_proxy_and_then_nodes_are_killed(cluster: AnyCluster, proxy: OncelogProxy) -> None:
    writers = {**CLIENTS, "java": java}
    topics = {client: f"from-{client}" for client in writers}
    for topic in topics.values():
        make_topic(proxy.bootstrap, topic, PARTITIONS)
    cluster.wait_until_in_sync()
    reader = GroupReader(proxy.bootstrap, [*topics.values()])
    try:
        with writing(proxy.bootstrap, topics, writers) as found:
            for one in found.values():
                one.wait_for_more()
            proxy.kill()
            proxy.start()
            for one in found.values():
                one.wait_for_more()
            for number in KILLED:
                cluster.nodes[number].kill()
                for one in found.values():
                    one.wait_for_more()
                cluster.nodes[number].start()
                cluster.wait_until_in_sync()
                for one in found.values():
                    one.wait_for_more()
        for client, one in found.items():
            reader.wait_for(topics[client], one.values)
    finally:
        reader.close()
    for client, topic in topics.items():
        written = Counter(values(proxy.bootstrap, topic, len(found[client].values), PARTITIONS))
        assert written.keys() >= {*found[client].values}
        assert client not in CLIENTS or {*written.values()} == {1}, written.most_common(3)
