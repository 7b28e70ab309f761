"""`AsyncFacade`: the common base of `AsyncBroker` and `AsyncProxy`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Self

from oncelog.broker.control.errors import (
    InvalidArgumentError,
    NotRunningError,
    OncelogError,
    UnsupportedError,
)
from oncelog.broker.control.new_records import warn_of_seconds
from oncelog.broker.embedded.async_api.access import AsyncClientAccess
from oncelog.broker.embedded.async_api.clock import AsyncClock
from oncelog.broker.embedded.async_api.faults import AsyncFaults
from oncelog.broker.embedded.async_api.groups import AsyncGroup
from oncelog.broker.embedded.async_api.share_groups import AsyncShareGroup
from oncelog.broker.embedded.async_api.topics import AsyncTopic
from oncelog.broker.embedded.async_api.transactions import AsyncTransactions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from types import TracebackType

    from oncelog.broker.control.controlled import ControlledOptions
    from oncelog.broker.control.request_types import Request
    from oncelog.broker.control.types import (
        BrokerInfo,
        HeadersGiven,
        IsolationLevel,
        ProducerInfo,
        Record,
        RecordGiven,
    )
    from oncelog.broker.embedded.carrier import Calls
    from oncelog.broker.embedded.own_options import OwnOptions


class AsyncFacade(AsyncClientAccess):
    """Starts and stops a broker or a proxy, and performs the operations of a test. Those that a proxy cannot perform
    raise UnsupportedError.
    """

    _kind: ClassVar[str]
    """The noun for it in errors."""

    def __init__(self, own: OwnOptions, controlled: ControlledOptions, *, process: bool) -> None:
        self._options, self._certificates, self._tokens = own
        self._controlled = controlled
        self._in_process = process
        self._calls: Calls | None = None
        self._info: BrokerInfo | None = None
        self._is_closed = False

    @classmethod
    def _sharing(cls, other: Any) -> Self:
        """Return one of this class that is the same as ``other``, which runs: for `oncelog.pytest_plugin`."""
        shared = cls.__new__(cls)
        vars(shared).update(vars(other))
        return shared

    # -- start and stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the broker, or start it again after `stop`, `kill` and `lose_power`: at the same address, with the data
        that is there. Nothing happens if it runs.

        Raises BrokerFailedError if it cannot start, NotRunningError after `close`.
        """
        if self._is_closed:
            raise NotRunningError(f"the {self._kind} was closed: make a new one")
        is_first = self._calls is None
        if self._calls is None:
            from oncelog.broker.embedded.carrier import Calls, new_carrier

            self._calls = Calls(new_carrier(self._controlled, process=self._in_process))
        try:
            self._info = await self._call("start")
        except BaseException:
            if is_first:
                self._calls.close()
                self._calls = None
            raise
        self._calls.warn_unless_closed(repr(self))

    async def stop(self) -> None:
        """Stop the broker cleanly, as SIGTERM does; `start` starts it again. Nothing happens if it does not run."""
        await self._call("stop")

    async def kill(self) -> None:
        """End the broker as SIGKILL does: data that it wrote stay, everything else is lost; `start` starts it again."""
        await self._call("kill")

    async def lose_power(self) -> None:
        """End the broker as a loss of power does: data that it had not flushed are lost, too; `start` starts it again.

        Raises UnsupportedError if the data is on a real disk.
        """
        await self._call("lose_power")

    async def reset(self) -> list[str]:
        """Make the broker as it was after its first start: topics, groups, transactions, configuration, faults and
        clock. Address and cluster id stay; topic ids and producer ids are not given out again. Connections are closed.

        Returns the client ids that were still connected.
        """
        result: list[str] = await self._call("reset")
        return result

    async def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Write all that the broker stores, as it is at this instant, to the file ``path``: topics, records, committed
        offsets, groups, open transactions, ids, configuration and the clock. It may run or be stopped.

        ``Broker(from_snapshot=path)`` starts with it, as often as wanted. Deadlines are kept relative: a transaction
        that has 30 seconds left has 30 seconds left then. The content is in memory meanwhile. Raises SnapshotError;
        ``path`` is then as before.
        """
        await self._call("snapshot", path=os.path.abspath(path))

    async def snapshot_bytes(self) -> bytes:
        """Return what `snapshot` would write."""
        content: bytes = await self._call("snapshot")
        return content

    async def close(self) -> None:
        """End the broker for good: no thread, no socket and, without ``data_dir``, no data is left. A second call does
        nothing.
        """
        calls, self._calls, self._is_closed = self._calls, None, True
        if calls is not None:
            try:
                if self._options.data_dir is not None:
                    with suppress(OncelogError):  # it has ended already
                        await calls.call_async("stop", {})  # flushes, which `Calls.close` would block for
            finally:
                calls.close()

    # -- topics, groups, transactions

    @property
    async def topics(self) -> list[str]:
        """The names of all topics but those that Kafka itself uses, sorted."""
        topics: list[str] = await self._call("topics")
        return topics

    async def create_topics(self, topics: Mapping[str, object] | Iterable[str]) -> None:
        """Create topics, given as `topics` of the constructor. Raises InvalidArgumentError for the first one that
        cannot be created, such as one that exists; none is created then.
        """
        await self._call(
            "create_topics", topics=topics if isinstance(topics, Mapping | str) else list(topics)
        )

    def topic(self, name: str) -> AsyncTopic:
        """Return a topic to read: ``kafka.topic("orders").records()``. It need not exist yet."""
        return AsyncTopic(self, name)

    @property
    async def groups(self) -> list[str]:
        """The ids of all groups but share groups, sorted."""
        groups: list[str] = await self._call("groups")
        return groups

    def group(self, group_id: str, *, isolation: IsolationLevel = "read_uncommitted") -> AsyncGroup:
        """Return a group to read: ``kafka.group("billing").committed``. It need not exist yet.

        isolation: where its lag is counted to: the last stable offset, or, with Kafka's default, the high watermark.
        """
        return AsyncGroup(self, group_id, isolation)

    @property
    async def share_groups(self) -> list[str]:
        """The ids of all share groups, sorted."""
        groups: list[str] = await self._call("share_groups")
        return groups

    def share_group(self, group_id: str) -> AsyncShareGroup:
        """Return a share group to read: ``kafka.share_group("jobs").in_flight``. It need not exist yet."""
        return AsyncShareGroup(self, group_id)

    @property
    def transactions(self) -> AsyncTransactions:
        """The transactional ids: ``kafka.transactions["app"].state``."""
        return AsyncTransactions(self)

    @property
    async def producers(self) -> list[ProducerInfo]:
        """The idempotent and transactional producers that partitions know, by topic, partition and producer id."""
        producers: list[ProducerInfo] = await self._call("producers")
        return producers

    # -- time

    @property
    def clock(self) -> AsyncClock:
        """The broker's time: ``kafka.clock.advance(days=7)``."""
        return AsyncClock(self)

    # -- records and topics of the test

    async def produce(
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
        timestamp: milliseconds or a datetime; without it, broker time. One that looks like seconds is a warning.
        partition: without it, that of the key, as Kafka's default partitioner has it; without a key, the shortest one.

        A topic that does not exist is created if ``auto.create.topics.enable`` is true, as it is by default. Raises
        KafkaError for a record that the broker refuses: MESSAGE_TOO_LARGE, ....
        """
        record = {
            "value": value,
            "key": key,
            "headers": headers if headers is None or isinstance(headers, Mapping) else list(headers),
            "timestamp": timestamp,
            "partition": partition,
        }
        warn_of_seconds([record])
        records: list[Record] = await self._call("produce", topic=topic, records=[record])
        return records[0]

    async def produce_many(self, topic: str, records: Iterable[RecordGiven]) -> list[Record]:
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
        given = list(records)
        warn_of_seconds(given)
        written: list[Record] = await self._call("produce", topic=topic, records=given)
        return written

    async def create_topic(
        self, name: str, partitions: int | None = None, config: Mapping[str, object] | None = None
    ) -> AsyncTopic:
        """Create a topic, with as many partitions as ``num.partitions`` says if not told otherwise; return it.

        Raises KafkaError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG, ....
        """
        await self._call("create_topic", name=name, partitions=partitions, config=config)
        return AsyncTopic(self, name)

    # -- requests of clients

    async def requests(
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
        """Return the latest requests of clients that match all given arguments, the newest last.

        api: Kafka's name of the API, such as "Produce".
        topic, group, transactional_id: that the request names.
        error: Kafka's name of an error in the response; "NONE" for requests whose response has none.
        limit: only the newest so many.

        The broker keeps the last ``requests_kept`` requests of each API, and at most 32 MB of requests in all. Raises
        InvalidArgumentError for an API or an error that does not exist.
        """
        requests: list[Request] = await self._call(
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

    async def wait_for(
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
        """Wait until a client has sent a matching request and its response has left; return the request.

            kafka.wait_for("OffsetCommit", group="billing")

        A request that was there before the call counts, too, so that there is no race with the client: pass an earlier
        Request as ``after`` to wait for one that came later.

        error: by default, only requests without an error count; with the name of an error, those that have it; with
            None, every request that is done, also one that a fault dropped.
        times: wait until there are so many; the last of them is returned.
        timeout: seconds of real time. WaitTimeoutError lists the requests that came instead.
        """
        request: Request = await self._call(
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

    # -- faults

    @property
    def faults(self) -> AsyncFaults:
        """The rules for faults on purpose: ``kafka.faults.on("EndTxn").nth(2).drop_response()``."""
        return AsyncFaults(self)

    # -- identity

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: ``127.0.0.1:39093``. It stays the same until `close`."""
        return self._known_info.bootstrap_servers

    @property
    def listeners(self) -> dict[str, str]:
        """Where it listens, by the listener's name: ``{"PLAINTEXT": "127.0.0.1:39093"}``. With ``advertised.listeners``
        clients are told other addresses, those of a TCP proxy of your own, that leads here.
        """
        return dict(self._known_info.listeners)

    @property
    def port(self) -> int:
        """The port of the first of its `listeners`. Raises UnsupportedError for a cluster that something else runs."""
        for address in self.listeners.values():
            return int(address.rpartition(":")[2])
        raise UnsupportedError("where a cluster listens is not known: bootstrap_servers has its addresses")

    @property
    def cluster_id(self) -> str:
        """The cluster id. It stays the same until `close`."""
        return self._known_info.cluster_id

    @property
    def seed(self) -> int:
        """The seed of random ids and delays."""
        return self._known_info.seed

    @property
    async def is_running(self) -> bool:
        """Whether the broker serves."""
        if self._calls is None:
            return False
        info: BrokerInfo = await self._call("info")
        return info.is_running

    @property
    async def log_lines(self) -> list[str]:
        """The broker's latest log lines, newest last."""
        lines: list[str] = await self._call("log_lines")
        return lines

    def __repr__(self) -> str:
        if self._info is None:
            return f"<{type(self).__name__}, not started>"
        closed = ", closed" if self._is_closed else ""
        return f"<{type(self).__name__} {self._info.bootstrap_servers}{closed}>"

    # -- calls

    @property
    def _known_info(self) -> BrokerInfo:
        if self._info is None:
            raise NotRunningError(
                f"the {self._kind} was not started: use it in a with statement, or call start()"
            )
        return self._info

    async def _call(self, operation: str, **arguments: Any) -> Any:
        if self._calls is None:
            raise NotRunningError(
                f"the {self._kind} was closed: make a new one"
                if self._is_closed
                else f"the {self._kind} was not started: use it in a with statement, or call start()"
            )
        return await self._calls.call_async(operation, arguments)
