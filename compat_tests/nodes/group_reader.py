"""A consumer group that reads on and on while nodes go and come."""

import threading
from collections import Counter

from confluent_kafka import Consumer

from compat_tests.transactions.reader import FAST_RECONNECT
from tests.common.threads import join

DEADLINE_S = 60.0


class GroupReader:
    """The only member of a group, which reads topics and commits."""

    def __init__(self, bootstrap: str, topics: list[str], protocol: str = "classic") -> None:
        self.values: dict[str, Counter[str]] = {topic: Counter() for topic in topics}
        self._changed = threading.Condition()
        self._ended = False
        settings = {"bootstrap.servers": bootstrap, "group.id": f"{topics[0]}-{protocol}"}
        settings |= {"group.protocol": protocol, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, **FAST_RECONNECT})
        self._consumer.subscribe(topics)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended:
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                with self._changed:
                    self.values[message.topic() or ""][(message.value() or b"").decode()] += 1
                    self._changed.notify_all()
        self._consumer.close()

    def wait_for(self, topic: str, values: list[str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.values[topic].keys() >= {*values}, DEADLINE_S)
        missing = {*values} - self.values[topic].keys()
        assert not missing, f"{len(missing)} of {len(values)} are lost: {sorted(missing)[:10]}"

    def close(self) -> None:
        self._ended = True
        join(self._thread)
