"""`ClientConnection`, with a scripted broker at the other end."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from oncelog import __version__
from oncelog.broker.client.connection import ClientConnection, has_response, next_correlation_id
from oncelog.broker.client.opening import open_connection
from oncelog.broker.seams.transport import connect
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.framing import encode_frame
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import ProduceRequest
from tests.harness.resetting_peer import resetting_peer
from tests.harness.scripted_broker import PeerEndedError, Received, ScriptedPeer
from tests.harness.sim_network import MemoryNetwork, MemoryTransport, memory_pair
from tests.harness.simulation import simulated

VERSIONS = [ApiVersion(12, 0, 4), ApiVersion(18, 0, 4), ApiVersion(22, 0, 6), ApiVersion(26, 1, 3)]
BEAT = HeartbeatRequest("group", 1, "member")


def connected(pipe_bytes_max: int = 1 << 16, **options: Any) -> tuple[ClientConnection, ScriptedPeer]:
    ours, theirs = memory_pair(pipe_bytes_max=pipe_bytes_max)
    connection = ClientConnection(ours, "me", **options)
    connection.versions = {row.api_key: (row.min_version, row.max_version) for row in VERSIONS}
    return connection, ScriptedPeer(theirs)


async def respond(peer: ScriptedPeer, code: int = 0) -> Received[HeartbeatRequest]:
    received = await peer.receive(HeartbeatRequest)
    await peer.respond(received, HeartbeatResponse(0, code))
    return received


async def error_of(connection: ClientConnection, timeout_s: float = 1000) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await connection.call(BEAT, timeout_s=timeout_s)
    return caught.value


@simulated
async def test_a_call_and_its_response() -> None:
    connection, peer = connected()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(respond, peer, 27)
        response = await connection.call(BEAT)
    assert response == HeartbeatResponse(0, 27)  # errors are not raised
    assert connection.in_flight == 0


@simulated
async def test_requests_have_a_client_id_and_correlation_ids_that_follow_each_other() -> None:
    connection, peer = connected()
    assert [next_correlation_id(one) for one in (0, 2**31 - 2, 2**31 - 1)] == [1, 2**31 - 1, 0]
    for expected in (1, 2, 3):
        in_flight = await connection.send(BEAT, 2)
        received = await respond(peer)
        assert (received.correlation_id, received.version, received.client_id) == (expected, 2, "me")
        assert received.request == BEAT
        assert await in_flight.wait_response() == HeartbeatResponse()


@simulated
async def test_many_requests_in_flight_awaited_in_any_order() -> None:
    connection, peer = connected()
    sent = [await connection.send(BEAT) for _ in range(5)]
    assert connection.in_flight == 5
    for code in range(5):
        await respond(peer, code)
    assert (await sent[3].wait_response()).error_code == 3
    assert connection.in_flight == 1  # it read for the first three as well
    assert [(await sent[at].wait_response()).error_code for at in (4, 0, 2, 1)] == [4, 0, 2, 1]
    assert (await sent[4].wait_response()).error_code == 4  # asked again


@simulated
async def test_the_reading_task_wakes_the_tasks_whose_responses_arrive() -> None:
    connection, peer = connected()
    finished: list[int] = []

    async def wait(code: int) -> None:
        finished.append((await connection.call(BEAT, timeout_s=1000)).error_code)
        assert finished[-1] == code

    async with trio.open_nursery() as nursery:
        for code in range(4):
            nursery.start_soon(wait, code)
            await trio.testing.wait_all_tasks_blocked()
        for code in range(4):
            assert finished == list(range(code))
            await respond(peer, code)
            await trio.testing.wait_all_tasks_blocked()


@simulated
async def test_a_cancelled_wait_leaves_the_connection_usable() -> None:
    connection, peer = connected()
    with trio.move_on_after(1):
        await connection.call(BEAT, timeout_s=1000)
    with trio.move_on_after(1) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.call, BEAT)
            received = await peer.receive(HeartbeatRequest)
            frame = encode_frame(received.response_header(), HeartbeatResponse(0, 1).encode(4))
            await peer.send_bytes(frame[:7])  # the reader is cancelled in the middle of a response
            await trio.sleep_forever()
    assert scope.cancelled_caught
    in_flight = await connection.send(BEAT)
    await peer.send_bytes(frame[7:])
    await respond(peer, 2)
    await respond(peer, 3)
    assert (await in_flight.wait_response()).error_code == 3


@simulated
async def test_another_task_reads_after_the_reader_was_cancelled() -> None:
    connection, peer = connected()
    first, second = await connection.send(BEAT), await connection.send(BEAT)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def read() -> None:
            with scope:
                await first.wait_response()

        async def wait() -> None:
            assert (await second.wait_response()).error_code == 6

        for task in (read, wait):
            nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        await respond(peer, 5)
        await respond(peer, 6)
    assert scope.cancelled_caught


@simulated
async def test_a_time_out_closes_the_connection_for_all() -> None:
    connection, peer = connected()
    errors: list[KafkaError] = []

    async def other() -> None:
        errors.append(await error_of(connection))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        start = trio.current_time()
        errors.append(await error_of(connection, timeout_s=3))
        assert trio.current_time() - start == pytest.approx(3)
    assert [error.code for error in errors] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert str(errors[0]) == "REQUEST_TIMED_OUT: simulated:9092: no response to HeartbeatRequest within 3 s"
    assert not connection.is_open
    for _ in range(2):
        await peer.receive(HeartbeatRequest)
    with pytest.raises(PeerEndedError):
        await peer.receive_payload()


@simulated
async def test_time_that_a_request_waits_to_be_sent_counts() -> None:
    connection, peer = connected(pipe_bytes_max=10)
    assert (await error_of(connection, timeout_s=2)).code == ErrorCode.REQUEST_TIMED_OUT
    assert peer.transport.pending() == 10


@simulated
async def test_a_request_that_is_cut_off_closes_the_connection() -> None:
    connection, peer = connected(pipe_bytes_max=10)
    with trio.move_on_after(1):
        await connection.send(BEAT)
    assert peer.transport.pending() == 10
    assert "a request was cut off" in str(await error_of(connection))


@simulated
async def test_large_requests_of_several_tasks_do_not_mix() -> None:
    connection, peer = connected(pipe_bytes_max=100)
    names = [letter * 1000 for letter in "abc"]
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(connection.call, HeartbeatRequest(name, 1, "member"))
        assert sorted([(await respond(peer)).request.group_id for _ in names]) == names


@simulated
async def test_the_broker_closes() -> None:
    connection, peer = connected()
    in_flight = await connection.send(BEAT)
    kept = await connection.send(BEAT)
    await respond(peer, 9)
    peer.transport.close()
    assert (await in_flight.wait_response()).error_code == 9  # what came before is not lost
    with pytest.raises(KafkaError, match="the broker closed the connection") as caught:
        await kept.wait_response()
    assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
    assert (await error_of(connection)).code == ErrorCode.NETWORK_EXCEPTION


@simulated
async def test_a_broker_that_closed_is_noticed_without_a_request() -> None:
    ends: list[tuple[Callable[[MemoryTransport], object], str]] = [
        (MemoryTransport.close, "the broker closed the connection"),
        (MemoryTransport.break_off, "was lost"),
        (
            lambda transport: transport.send(b"\0"),
            "UNKNOWN_SERVER_ERROR: simulated:9092: a response to no request",
        ),
    ]
    for end, text in ends:
        connection, peer = connected()
        in_flight = await connection.send(BEAT)
        assert connection.is_open
        await respond(peer)
        assert connection.is_open  # the response is there: it is not read by looking
        await in_flight.wait_response()
        assert connection.is_open
        end(peer.transport)
        assert not connection.is_open
        assert text in str(await error_of(connection))


@simulated
async def test_the_connection_is_lost_while_sending() -> None:
    connection, peer = connected(pipe_bytes_max=10)
    async with trio.open_nursery() as nursery:

        async def lose() -> None:
            await trio.testing.wait_all_tasks_blocked()
            peer.transport.break_off()

        nursery.start_soon(lose)
        error = await error_of(connection)
    assert error.code == ErrorCode.NETWORK_EXCEPTION
    assert "the simulated connection was lost" in str(error)


@simulated
async def test_closed_on_this_side() -> None:
    connection, _ = connected()
    async with trio.open_nursery() as nursery:

        async def close() -> None:
            await trio.testing.wait_all_tasks_blocked()
            connection.close()
            connection.close()

        nursery.start_soon(close)
        assert "closed on this side" in str(await error_of(connection))
    assert not connection.is_open


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\0\0\x10\0", "a frame of 4096 bytes; the limit is 1000"),
        (b"\0\0\0\x02\0\0", "response header"),
        (b"\0\0\0\x04\0\0\0\x05", "a response with correlation id 5, which is not the next"),
        (b"\0\0\0\x05\0\0\0\x01\0", "malformed response"),
    ],
)
@simulated
async def test_a_broker_that_breaks_the_protocol(sent: bytes, text: str) -> None:
    connection, peer = connected(response_bytes_max=1000)
    await peer.send_bytes(sent)
    error = await error_of(connection)
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert text in str(error)
    assert not connection.is_open


@simulated
async def test_a_response_without_a_request() -> None:
    connection, peer = connected()
    await peer.send_bytes(encode_frame(b"\0\0\0\1\0", HeartbeatResponse().encode(4)) * 2)
    assert await connection.call(BEAT) == HeartbeatResponse()
    assert "correlation id 1, which is not the next" in str(await error_of(connection))


@simulated
async def test_a_request_that_the_version_cannot_carry_harms_nothing() -> None:
    connection, peer = connected()
    with pytest.raises(ValueError, match="group_instance_id"):
        await connection.call(HeartbeatRequest("group", 1, "member", "instance"), 2)
    assert connection.is_open
    async with trio.open_nursery() as nursery:
        nursery.start_soon(respond, peer)
        await connection.call(BEAT)


@simulated
async def test_a_produce_without_a_response() -> None:
    connection, peer = connected()
    silent, loud = ProduceRequest(None, 0, 1000, []), ProduceRequest(None, 1, 1000, [])
    assert not has_response(silent)
    assert has_response(loud)
    with pytest.raises(ValueError, match="no response"):
        await connection.call(silent, 9)
    with pytest.raises(ValueError, match="has a response"):
        await connection.send_without_response(loud, 9)
    await connection.send_without_response(silent, 9)
    assert (await peer.receive(ProduceRequest)).request == silent
    async with trio.open_nursery() as nursery:
        nursery.start_soon(respond, peer)
        assert await connection.call(BEAT) == HeartbeatResponse()


def test_the_highest_version_of_both() -> None:
    connection, _ = connected()
    assert connection.version_for(HeartbeatRequest) == 4
    assert connection.version_for(EndTxnRequest) == 3
    assert connection.version_for(InitProducerIdRequest) == 5  # 6 is not stable
    connection.versions = {12: (5, 9), 26: (0, 9)}
    assert connection.version_for(EndTxnRequest) == EndTxnRequest.MAX_VERSION
    with pytest.raises(KafkaError, match="HeartbeatRequest: the broker has 5 to 9, the client 0 to 4"):
        connection.version_for(HeartbeatRequest)
    with pytest.raises(KafkaError, match="the broker has no version") as caught:
        connection.version_for(InitProducerIdRequest)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    connection.versions = None
    with pytest.raises(ValueError, match="negotiate"):
        connection.version_for(EndTxnRequest)


@simulated
async def test_negotiation() -> None:
    connection, peer = connected()
    async with trio.open_nursery() as nursery:

        async def response() -> None:
            received = await peer.receive(ApiVersionsRequest)
            assert received.version == 5
            assert received.request == ApiVersionsRequest("oncelog", __version__)
            await peer.respond(
                received, ApiVersionsResponse(0, [ApiVersion(26, 0, 2)], finalized_features_epoch=3)
            )

        nursery.start_soon(response)
        assert (await connection.negotiate()).finalized_features_epoch == 3
    assert connection.versions == {26: (0, 2)}


@pytest.mark.parametrize(
    ("told", "asked"), [([ApiVersion(18, 0, 2)], 2), ([], 0), ([ApiVersion(18, 0, 9)], 4)]
)
@simulated
async def test_a_broker_that_has_no_such_version_of_api_versions(told: list[ApiVersion], asked: int) -> None:
    connection, peer = connected()
    async with trio.open_nursery() as nursery:

        async def response() -> None:
            received = await peer.receive(ApiVersionsRequest)
            await peer.respond(received, ApiVersionsResponse(35, told), version=0)
            received = await peer.receive(ApiVersionsRequest)
            assert received.version == asked
            await peer.respond(received, ApiVersionsResponse(0, VERSIONS))

        nursery.start_soon(response)
        await connection.negotiate()
    assert connection.version_for(EndTxnRequest) == 3


@simulated
async def test_a_broker_that_refuses_api_versions() -> None:
    connection, peer = connected()
    async with trio.open_nursery() as nursery:

        async def response() -> None:
            await peer.respond(await peer.receive(ApiVersionsRequest), ApiVersionsResponse(31))

        nursery.start_soon(response)
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await connection.negotiate()
    assert not connection.is_open


@simulated
async def test_opening() -> None:
    network = MemoryNetwork()
    with pytest.raises(KafkaError, match=r"NETWORK_EXCEPTION: here:1: nobody listens") as caught:
        await open_connection(network.connect, "here", 1)
    assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
    listener = network.listen("here", 1)
    with pytest.raises(KafkaError, match="here:1: not connected within 5 s") as caught:
        await open_connection(network.connect, "here", 1, timeout_s=5)
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    transport = listener.accept()
    assert transport is not None
    peer = ScriptedPeer(transport)
    await peer.receive(ApiVersionsRequest)
    with pytest.raises(PeerEndedError), trio.fail_after(60):  # what was given up is closed
        await peer.receive_payload()


def test_an_error_of_the_socket_is_said_in_words() -> None:
    with resetting_peer() as address:

        async def main() -> None:
            await open_connection(connect, *address)

        with pytest.raises(KafkaError, match=r": Connection reset by peer \(perhaps it wants TLS"):
            trio.run(main)
