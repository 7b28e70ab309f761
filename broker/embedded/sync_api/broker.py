# Made by .ci/unasync.py from async_api/broker.py: edit that one.
"""`Broker`: a broker in the program that uses it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from oncelog.broker.control.errors import InvalidArgumentError, NotRunningError, OncelogError
from oncelog.broker.control.options import REQUESTS_KEPT, checked_options
from oncelog.broker.embedded.sync_api.access import Access
from oncelog.broker.embedded.sync_api.clock import Clock
from oncelog.broker.embedded.sync_api.faults import Faults
from oncelog.broker.embedded.sync_api.groups import Group
from oncelog.broker.embedded.sync_api.topics import Topic
from oncelog.broker.embedded.sync_api.transactions import Transactions
from oncelog.broker.embedded.certificates import Certificates

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from types import TracebackType

    from oncelog.broker.control.acl_options import Acl
    from oncelog.broker.control.types import (
        BrokerInfo,
        HeadersGiven,
        IsolationLevel,
        ProducerInfo,
        Record,
        RecordGiven,
        Request,
    )
    from oncelog.broker.embedded.host import Calls


class Broker(Access):
    """A Kafka broker in this process, on a thread of its own, for tests.

        with Broker(topics={"orders": 3}) as kafka:
            client = SomeKafkaClient(kafka.bootstrap_servers)

    It starts with the block, or with `start`, and is gone with the end of the block, or with `close`. One that is
    forgotten without that ends, too, with a ResourceWarning. Arguments that make no sense raise InvalidArgumentError at
    once.

    topics: created at the start: names, or ``{"orders": 3}`` with the number of partitions, or ``{"orders":
        {"partitions": 3, "config": {"cleanup.policy": "compact"}}}``.
    config: Kafka's broker configuration. Defaults that are not Kafka's: ``group.initial.rebalance.delay.ms`` is 0, and
        ``offsets.topic.num.partitions`` and ``transaction.state.log.num.partitions`` are 1.
    data_dir: where to keep the data. Without it, it is kept in memory and ends with the broker.
    port: 0 takes a free one, which stays the broker's until `close`.
    from_snapshot: the path of a file that `snapshot` wrote, or what `snapshot_bytes` returned: the broker starts with
        its data, configuration and clock. ``config`` and ``topics`` add to them.
    seed: for random ids and delays; without it, `seed` tells the one that was drawn.
    requests_kept: how many requests of each API `requests` can show. With 0 there are none, and the broker spends on a
        small Produce a third of the time.
    version: serve what a broker of this release of Kafka serves, such as "3.9"; without it, all that oncelog does.
    users: passwords by user's name, such as ``{"app": "secret"}``: they log in by PLAIN and SCRAM. Without listeners in
        ``config``, the only one is SASL_PLAINTEXT then.
    acls: who may do what: `Acl` each, such as ``Acl("User:app", "Read", topic="orders")``. With them, also with an
        empty list, nobody else may do anything (Kafka's StandardAuthorizer).
    tls: the listener speaks TLS, with certificates of an authority that the broker makes. `client_config` has what a
        client needs, and `certificate` what it may show.
    process: run it in a child process instead of a thread, for a program that keeps Python's interpreter busy itself.
    """

    def __init__(
        self,
        topics: Mapping[str, object] | Iterable[str] = (),
        config: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        from_snapshot: str | os.PathLike[str] | bytes | None = None,
        port: int = 0,
        seed: int | None = None,
        requests_kept: int = REQUESTS_KEPT,
        version: str | None = None,
        users: Mapping[str, str] | None = None,
        acls: Iterable[Acl | Mapping[str, object]] | None = None,
        tls: bool = False,
        process: bool = False,
    ) -> None:
        self._certificates = Certificates() if tls else None
        self._options = checked_options(
            topics=topics,
            config=config,
            data_dir=None if data_dir is None else os.path.abspath(data_dir),
            port=port,
            seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
            requests_kept=requests_kept,
            version=version,
            users=users,
            acls=acls,
            tls=None if self._certificates is None else self._certificates.broker_config(),
            from_snapshot=_source(from_snapshot),
        )
        self._in_process = process
        self._calls: Calls | None = None
        self._info: BrokerInfo | None = None
        self._is_closed = False

    @classmethod
    def _sharing(cls, other: Any) -> Any:
        """Return a broker of this class that is the same as ``other``, which runs: for `oncelog.pytest_plugin`."""
        shared = cls()
        shared._options, shared._calls, shared._info = other._options, other._calls, other._info
        return shared

    # -- its life

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker, or start it again after `stop`, `kill` and `lose_power`: at the same address, with the data
        that is there. Nothing happens if it runs.

        Raises BrokerFailedError if it cannot start, NotRunningError after `close`.
        """
        if self._is_closed:
            raise NotRunningError("the broker was closed: make a new one")
        is_first = self._calls is None
        if self._calls is None:
            from oncelog.broker.embedded.host import Calls, new_host

            self._calls = Calls(new_host(self._options, process=self._in_process))
        try:
            self._info = self._call("start")
        except BaseException:
            if is_first:
                self._calls.close()
                self._calls = None
            raise
        self._calls.warn_unless_closed(repr(self))

    def stop(self) -> None:
        """Stop the broker cleanly, as SIGTERM does; `start` starts it again. Nothing happens if it does not run."""
        self._call("stop")

    def kill(self) -> None:
        """End the broker as SIGKILL does: what it wrote stays, everything else is lost; `start` starts it again."""
        self._call("kill")

    def lose_power(self) -> None:
        """End the broker as a loss of power does: what it had not flushed is lost, too; `start` starts it again.

        Raises UnsupportedError if the data is on a real disk.
        """
        self._call("lose_power")

    def reset(self) -> list[str]:
        """Make the broker as it was after its first start: topics, groups, transactions, configuration, faults and
        clock. Address and cluster id stay; topic ids and producer ids are not given out again. Connections are closed.

        Returns the client ids that were still connected.
        """
        result: list[str] = self._call("reset")
        return result

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Write all that the broker stores, as it is at this instant, to the file ``path``: topics, records, committed
        offsets, groups, open transactions, ids, configuration and the clock. It may run or be stopped.

        ``Broker(from_snapshot=path)`` starts with it, as often as wanted. Deadlines are kept relative: a transaction
        that has 30 seconds left has 30 seconds left then. The content is in memory meanwhile. Raises SnapshotError;
        ``path`` is then as before.
        """
        self._call("snapshot", path=os.path.abspath(path))

    def snapshot_bytes(self) -> bytes:
        """Return what `snapshot` would write."""
        content: bytes = self._call("snapshot")
        return content

    def close(self) -> None:
        """End the broker for good: no thread, no socket and, without ``data_dir``, no data is left. A second call does
        nothing.
        """
        calls, self._calls, self._is_closed = self._calls, None, True
        if calls is not None:
            try:
                if self._options.data_dir is not None:
                    with suppress(OncelogError):  # it has ended already
                        calls.call("stop", {})  # flushes, which `Calls.close` would block for
            finally:
                calls.close()

    # -- what there is in it

    @property
    def topics(self) -> list[str]:
        """The names of all topics but those that Kafka itself uses, sorted."""
        topics: list[str] = self._call("topics")
        return topics

    def create_topics(self, topics: Mapping[str, object] | Iterable[str]) -> None:
        """Create topics: names, or what `topics` of the constructor may be. Raises InvalidArgumentError for the first
        that cannot be created, such as one that exists; none is created then.
        """
        self._call(
            "create_topics", topics=topics if isinstance(topics, Mapping | str) else list(topics)
        )

    def topic(self, name: str) -> Topic:
        """Return a topic to read: ``kafka.topic("orders").records()``. It need not exist yet."""
        return Topic(self, name)

    @property
    def groups(self) -> list[str]:
        """The ids of all groups, sorted."""
        groups: list[str] = self._call("groups")
        return groups

    def group(self, group_id: str, *, isolation: IsolationLevel = "read_uncommitted") -> Group:
        """Return a group to read: ``kafka.group("billing").committed``. It need not exist yet.

        isolation: where its lag is counted to: the last stable offset, or, with Kafka's default, the high watermark.
        """
        return Group(self, group_id, isolation)

    @property
    def transactions(self) -> Transactions:
        """The transactional ids: ``kafka.transactions["app"].state``."""
        return Transactions(self)

    @property
    def producers(self) -> list[ProducerInfo]:
        """The idempotent and transactional producers that partitions know, by topic, partition and producer id."""
        producers: list[ProducerInfo] = self._call("producers")
        return producers

    # -- its time

    @property
    def clock(self) -> Clock:
        """The broker's time: ``kafka.clock.advance(days=7)``."""
        return Clock(self)

    # -- what a test puts into it

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        headers: HeadersGiven | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> Record:
        """Write a record without a client, as a producer with ``acks=all`` does; return it with its offset.

        value, key: bytes, or a text, which is written in UTF-8. A value of None is a tombstone.
        headers: ``{"trace": b"1"}``, or pairs where a name occurs twice.
        timestamp: milliseconds or a datetime; without it, broker time.
        partition: without it, that of the key, as Kafka's default partitioner has it; without a key, the shortest one.

        A topic that does not exist is created if ``auto.create.topics.enable`` is true, as it is by default. Raises
        KafkaError for what the broker refuses, such as MESSAGE_TOO_LARGE.
        """
        record = {
            "value": value,
            "key": key,
            "headers": headers if headers is None or isinstance(headers, Mapping) else list(headers),
            "timestamp": timestamp,
            "partition": partition,
        }
        records: list[Record] = self._call("produce", topic=topic, records=[record])
        return records[0]

    def produce_many(self, topic: str, records: Iterable[RecordGiven]) -> list[Record]:
        """Write many records, as `produce` does one; return them with their offsets.

            kafka.produce_many("orders", [b"a", b"b"])
            kafka.produce_many("orders", [(b"key", b"value"), ...])
            kafka.produce_many("orders", [{"value": b"a", "headers": {"trace": b"1"}, "partition": 2}, ...])

        Records that were read from a topic can be written to another one, too.
        """
        if isinstance(records, str | bytes | Mapping):
            raise InvalidArgumentError(
                f"records={records!r}: expected a list of records; produce() writes one"
            )
        written: list[Record] = self._call("produce", topic=topic, records=list(records))
        return written

    def create_topic(
        self, name: str, partitions: int | None = None, config: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic, with as many partitions as ``num.partitions`` says if not told otherwise; return it.

        Raises KafkaError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG, ....
        """
        self._call("create_topic", name=name, partitions=partitions, config=config)
        return Topic(self, name)

    # -- what clients sent

    def requests(
        self,
        api: str | None = None,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        error: str | None = None,
        limit: int | None = None,
    ) -> list[Request]:
        """Return the latest requests of clients for which all holds that is given, the newest last.

        api: Kafka's name of the API, such as "Produce".
        topic, group, transactional_id: that the request names.
        error: Kafka's name of an error in the response; "NONE" for requests whose response has none.
        limit: only the newest so many.

        The broker keeps the last ``requests_kept`` requests of each API, and at most 32 MB of requests in all. Raises
        InvalidArgumentError for an API or an error that does not exist.
        """
        requests: list[Request] = self._call(
            "requests",
            api=api,
            client_id=client_id,
            topic=topic,
            group=group,
            transactional_id=transactional_id,
            error=error,
            limit=limit,
        )
        return requests

    def wait_for(
        self,
        api: str,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        error: str | None = "NONE",
        times: int = 1,
        after: Request | None = None,
        timeout: float = 10,
    ) -> Request:
        """Wait until a client has sent such a request and its response has left; return it.

            kafka.wait_for("OffsetCommit", group="billing")

        A request that was there before the call counts, too, so that there is no race with the client: pass an earlier
        Request as ``after`` to wait for one that came later.

        error: by default, only requests without an error count; with the name of an error, those that have it; with
            None, every request that is done, also one that a fault dropped.
        times: wait until there are so many; the last of them is returned.
        timeout: seconds of real time. WaitTimeoutError says what came instead.
        """
        request: Request = self._call(
            "wait_for",
            api=api,
            client_id=client_id,
            topic=topic,
            group=group,
            transactional_id=transactional_id,
            error=error,
            times=times,
            after=0 if after is None else after.number,
            timeout=timeout,
        )
        return request

    # -- what goes wrong

    @property
    def faults(self) -> Faults:
        """What goes wrong on purpose: ``kafka.faults.on("EndTxn").nth(2).drop_response()``."""
        return Faults(self)

    # -- what identifies it

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to: ``127.0.0.1:39093``. It stays the same until `close`."""
        return self._known_info.bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The cluster id. It stays the same until `close`."""
        return self._known_info.cluster_id

    @property
    def seed(self) -> int:
        """Random ids and delays follow from it."""
        return self._known_info.seed

    @property
    def is_running(self) -> bool:
        """Whether the broker serves."""
        if self._calls is None:
            return False
        info: BrokerInfo = self._call("info")
        return info.is_running

    @property
    def log_lines(self) -> list[str]:
        """The broker's latest log lines, newest last."""
        lines: list[str] = self._call("log_lines")
        return lines

    def __repr__(self) -> str:
        if self._info is None:
            return f"<{type(self).__name__}, not started>"
        closed = ", closed" if self._is_closed else ""
        return f"<{type(self).__name__} {self._info.bootstrap_servers}{closed}>"

    # -- how everything is done

    @property
    def _known_info(self) -> BrokerInfo:
        if self._info is None:
            raise NotRunningError("the broker was not started: use it in a with statement, or call start()")
        return self._info

    def _call(self, operation: str, **arguments: Any) -> Any:
        if self._calls is None:
            raise NotRunningError(
                "the broker was closed: make a new one"
                if self._is_closed
                else "the broker was not started: use it in a with statement, or call start()"
            )
        return self._calls.call(operation, arguments)


def _source(snapshot: str | os.PathLike[str] | bytes | None) -> str | bytes | None:
    """Return the content or the absolute path of a snapshot."""
    if snapshot is None or isinstance(snapshot, bytes):
        return snapshot
    return os.path.abspath(snapshot)
