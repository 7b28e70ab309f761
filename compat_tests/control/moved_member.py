"""A consumer in a process of its own, which a test kills: it joins a group and stays there.

python -m compat_tests.control.moved_member BOOTSTRAP GROUP PROTOCOL TOPIC
"""

import sys

from confluent_kafka import Consumer


def main() -> None:
    bootstrap, group, protocol, topic = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "doomed",
        }
    )
    consumer.subscribe([topic])
    while True:
        consumer.poll(0.1)


if __name__ == "__main__":
    main()
