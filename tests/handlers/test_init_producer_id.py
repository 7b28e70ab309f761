"""InitProducerId: producer ids are unique; a transactional id has one owner at a time."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.harness.requests import create_topic
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_client import ConnectionEndedError
from tests.harness.simulation import simulated
from tests.harness.transactional_producer import (
    CLASSIC,
    V2,
    CommittedReader,
    Link,
    TransactionalProducer,
    TransactionEndedError,
    Versions,
)


@simulated
async def test_ids_are_unique_over_restarts_and_crashes() -> None:
    async with SimBroker() as broker:
        seen: list[int] = []
        for end in ("stop", "process", "power", "stop"):
            client = broker.connect()
            for _ in range(3):
                response = await client.call(InitProducerIdRequest(None, 0), 4, InitProducerIdResponse)
                assert (response.error_code, response.producer_epoch) == (0, 0)
                seen.append(response.producer_id)
            if end == "stop":
                await broker.stop()
            else:
                await broker.crash(end)  # type: ignore[arg-type]
            await broker.start()
        assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "code"),
    [(None, 5, -1, ErrorCode.INVALID_REQUEST), (None, -1, 3, ErrorCode.INVALID_REQUEST), (None, 5, 3, 0),
     ("", -1, -1, ErrorCode.INVALID_REQUEST), ("t", -1, -1, ErrorCode.NOT_COORDINATOR)],
)  # fmt: skip
def test_requests_with_other_options(
    transactional_id: str | None, producer_id: int, epoch: int, code: int
) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            request = InitProducerIdRequest(transactional_id, 1000, producer_id, epoch)
            response = await broker.connect().call(request, 4, InitProducerIdResponse)
            assert response.error_code == code

    run()


@pytest.mark.parametrize("versions", [CLASSIC, V2])
@pytest.mark.parametrize("crash", [False, True])
def test_when_a_producer_ids_epochs_are_used_up(versions: Versions, crash: bool) -> None:
    """The owner of the transactional id gets a new producer id, and markers, restarts and readers handle that."""

    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            await create_topic(client, "t")
            producer = TransactionalProducer(Link(client), "id", versions)
            await producer.init()
            shard = broker.node.transactions.shard("id")
            shard.transition_to("id", shard.transactions["id"].metadata._replace(producer_epoch=32_764))
            producer.epoch = 32_764
            ids = [producer.producer_id]
            for number in range(5):
                await producer.send("t", 0, [b"%d" % number], broker.clock.now_ms())
                if crash:
                    await broker.crash("process")
                    await broker.start()
                    await broker.node.logs.recovered()
                    producer.link = Link(broker.connect())
                await producer.end(commit=number != 2)
                if not versions.is_v2:
                    await producer.init()
                ids.append(producer.producer_id)
                assert producer.epoch <= 32_766
            assert len(set(ids)) == 2
            reader = CommittedReader("t", 0)
            await reader.poll(broker.connect())
            assert list(reader.values.values()) == [b"0", b"1", b"3", b"4"]
            assert reader.position == reader.high_watermark

    run()


@simulated
async def test_initialising_the_id_ends_the_open_transaction_of_the_producer_before() -> None:
    async with SimBroker() as broker:
        await create_topic(broker.connect(), "t")
        old = TransactionalProducer(Link(broker.connect()), "id")
        await old.init()
        await old.send("t", 0, [b"old"], broker.clock.now_ms())
        new = TransactionalProducer(Link(broker.connect()), "id")
        # The first attempt succeeds; in Kafka it gets CONCURRENT_TRANSACTIONS.
        response = await broker.connect().call(InitProducerIdRequest("id", 1000), 4, InitProducerIdResponse)
        assert (response.error_code, response.producer_epoch) == (0, 2)
        for commit in (True, False):
            with pytest.raises(TransactionEndedError) as caught:
                await old.end(commit=commit)
            assert caught.value.code == ErrorCode.PRODUCER_FENCED
        with pytest.raises(TransactionEndedError) as caught:
            await old.send("t", 0, [b"zombie"], broker.clock.now_ms())
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        await new.init()
        await new.send("t", 0, [b"new"], broker.clock.now_ms())
        await new.end(commit=True)
        reader = CommittedReader("t", 0)
        await reader.poll(broker.connect())
        assert list(reader.values.values()) == [b"new"]


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
def test_older_clients_know_no_producer_fenced(version: int, code: ErrorCode) -> None:
    @simulated
    async def run() -> None:
        async with SimBroker() as broker:
            producer = TransactionalProducer(Link(broker.connect()), "id")
            await producer.init()
            await producer.init()
            request = InitProducerIdRequest("id", 1000, producer.producer_id, 0)
            response = await broker.connect().call(request, version, InitProducerIdResponse)
            assert response.error_code == code

    run()


TWO_PHASE_COMMIT = "transaction.two.phase.commit.enable"


@pytest.mark.parametrize(
    ("is_enabled", "keeps", "code"),
    [(True, False, 0), (False, False, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
     (True, True, ErrorCode.UNSUPPORTED_VERSION)],
)  # fmt: skip
def test_transactions_that_never_time_out(is_enabled: bool, keeps: bool, code: int) -> None:
    @simulated
    async def run() -> None:
        config = {"unstable.api.versions.enable": "true", TWO_PHASE_COMMIT: str(is_enabled).lower()}
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            await client.call(
                FindCoordinatorRequest(coordinator_keys=["t"], key_type=1), 4, FindCoordinatorResponse
            )
            request = InitProducerIdRequest("t", 0, enable2_pc=True, keep_prepared_txn=keeps)
            response = await client.call(request, 6, InitProducerIdResponse)
            assert response.error_code == code
            if code == 0:
                client = await broker.restart()
                described = await client.call(
                    DescribeTransactionsRequest(["t"]), 0, DescribeTransactionsResponse
                )
                assert described.transaction_states[0].transaction_timeout_ms == 2**31 - 1

    run()


@simulated
async def test_without_the_key_the_unstable_version_is_not_served() -> None:
    async with SimBroker(config={TWO_PHASE_COMMIT: "true"}) as broker:
        with pytest.raises(ConnectionEndedError):
            await broker.connect().call(InitProducerIdRequest("t", 1000), 6, InitProducerIdResponse)
