"""Proxies of which each has another one as its upstream: no request goes round for ever."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.logging.logs import LogOutput, logging_to
from oncelog.broker.proxy.passed_proxies import ID_BYTES, LOOP, LOOP_ERROR, TAG, PassedProxies, ids_of
from oncelog.broker.proxy.upstream import UpstreamError
from oncelog.broker.seams.clock import SystemClock
from oncelog.wire.compiler import TAGS_MAX, put_uvarint
from oncelog.wire.errors import DecodeError
from oncelog.wire.framing import encode_request
from oncelog.wire.header import read_request_header
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.harness.log_lines import Lines
from tests.harness.scripted_broker import ScriptedBroker
from tests.harness.sim_network import MemoryNetwork, MemoryTransport
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import SimProxy
from tests.proxy.test_bad_upstream import KAFKA, single

CONNECTIONS_MAX = 100


class Ring:
    """A network in which some hosts are proxies: `hosts` may come to lead elsewhere."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.hosts: dict[str, SimProxy] = {}
        self._proxies = self.connections = 0
        self.node = ScriptedBroker(self.network.listen(*KAFKA))
        self.node.on(
            MetadataRequest,
            lambda request, version: MetadataResponse(brokers=[MetadataResponseBroker(1, *KAFKA)]),
        )

    def proxy(self, upstream: str) -> SimProxy:
        return self.new_proxy(upstream)

    def new_proxy(
        self,
        upstream: str,
        config: dict[str, str] | None = None,
        *,
        addresses: list[tuple[str, int]] | None = None,
        **more: Any,
    ) -> SimProxy:
        self._proxies += 1
        host = f"simulated{self._proxies}"
        return SimProxy(self._connect, addresses or [(upstream, KAFKA[1])], config, host=host, **more)

    async def outside(self, host: str, port: int) -> MemoryTransport:
        """Connect to a host that is no proxy."""
        return await self.network.connect(host, port)

    async def _connect(self, host: str, port: int) -> MemoryTransport:
        self.connections += 1
        assert self.connections <= CONNECTIONS_MAX, "it goes round for ever"
        proxy = self.hosts.get(host)
        if proxy is None:
            return await self.outside(host, port)
        while not proxy.sockets:  # it is going to listen
            await trio.lowlevel.checkpoint()
        return proxy.connect().transport


async def chain(ring: Ring, count: int, running: AsyncExitStack) -> list[SimProxy]:
    """Start proxies, each before the next one, the last before Kafka; the first comes first."""
    proxies: list[SimProxy] = []
    for place in range(count):
        upstream = f"proxy{place}" if place else KAFKA[0]
        proxies.append(await running.enter_async_context(ring.proxy(upstream)))
        ring.hosts[f"proxy{place + 1}"] = proxies[-1]
    return proxies[::-1]


@pytest.mark.parametrize("count", [1, 2, 3])
@simulated
async def test_the_start_that_closes_a_loop_fails(count: int) -> None:
    ring = Ring()
    async with trio.open_nursery() as nursery, AsyncExitStack() as running:
        nursery.start_soon(ring.node.serve)
        others = await chain(ring, count, running)
        closing = ring.hosts[KAFKA[0]] = ring.proxy(f"proxy{count}")
        with pytest.raises(BaseExceptionGroup) as caught:
            async with closing:
                raise AssertionError("it has started")
        error = single(caught.value)
        assert isinstance(error, UpstreamError)
        assert str(error) == f"the upstream cannot be used: proxy{count}:1000: {LOOP}"
        await trio.testing.wait_all_tasks_blocked()
        assert [one.connections for one in others] == [[]] * count
        nursery.cancel_scope.cancel()


@simulated
async def test_a_start_before_a_loop_of_others_fails() -> None:
    ring = Ring()
    async with trio.open_nursery() as nursery, AsyncExitStack() as running:
        nursery.start_soon(ring.node.serve)
        [first, _] = await chain(ring, 2, running)
        ring.hosts[KAFKA[0]] = first
        with pytest.raises(BaseExceptionGroup) as caught:
            async with ring.proxy("proxy2"):
                raise AssertionError("it has started")
        assert str(single(caught.value)) == f"the upstream cannot be used: proxy2:1000: {LOOP}"
        nursery.cancel_scope.cancel()


@simulated
async def test_two_that_start_at_the_same_time() -> None:
    ring = Ring()
    why: list[str] = []

    async def start(proxy: SimProxy) -> None:
        try:
            async with proxy:
                raise AssertionError("it has started")
        except BaseExceptionGroup as group:
            error = single(group)
            assert isinstance(error, UpstreamError)
            why.append(str(error))

    ring.hosts = {"one": ring.proxy("two"), "two": ring.proxy("one")}
    async with trio.open_nursery() as nursery:
        for proxy in ring.hosts.values():
            nursery.start_soon(start, proxy)
    assert len(why) == 2
    assert [text for text in why if LOOP in text]


@pytest.mark.parametrize("count", [2, 3])
@simulated
async def test_a_loop_that_begins_later_is_told_to_clients(count: int) -> None:
    ring = Ring()
    lines = Lines()
    with logging_to(LogOutput(lines, SystemClock(), level="info")):
        async with trio.open_nursery() as nursery, AsyncExitStack() as running:
            nursery.start_soon(ring.node.serve)
            proxies = await chain(ring, count, running)
            client = proxies[0].connect()
            response = await client.call(ApiVersionsRequest("app", "1"), 4, ApiVersionsResponse)
            assert response.error_code == 0
            ring.hosts[KAFKA[0]] = proxies[0]
            for _ in range(2):
                client = proxies[0].connect()
                response = await client.call(ApiVersionsRequest("app", "1"), 4, ApiVersionsResponse)
                assert response.error_code == LOOP_ERROR
                client.transport.close()
                await trio.testing.wait_all_tasks_blocked()
            assert [len(one.connections) for one in proxies] == [1] * count
            nursery.cancel_scope.cancel()
    assert len([line for line in lines.lines if LOOP in line]) == 1


# -- the mark

ONE, TWO = (bytes([number]) * ID_BYTES for number in (1, 2))


def frame_of(version: int, client_id: str | None = "app") -> bytes:
    return encode_request(ApiVersionsRequest("app", "1"), version, 7, client_id)[4:]


@pytest.mark.parametrize("client_id", [None, "", "app"])
def test_an_api_versions_says_which_proxies_it_has_passed(client_id: str | None) -> None:
    frame = frame_of(4, client_id)
    one, two = PassedProxies(ONE), PassedProxies(TWO)
    assert not one.is_loop(ids_of(frame))
    passed = two.with_own_id(one.with_own_id(frame))
    assert one.is_loop(ids_of(passed))
    assert two.is_loop(ids_of(passed))
    assert not PassedProxies().is_loop(ids_of(passed))
    header = read_request_header(passed, flexible=True)
    assert (header.client_id, header.correlation_id) == (client_id or "", 7)
    assert bytes(passed[header.header_size :]) == frame[read_request_header(frame, True).header_size :]


def test_other_tagged_fields_stay() -> None:
    frame = frame_of(3)
    start = frame.index(b"\0", 13)
    tagged = frame[:start] + b"\x02\x05\x01a\xff\xff\xff\x7f\x02bc" + frame[start + 1 :]
    passed = bytes(PassedProxies(ONE).with_own_id(tagged))
    tag = bytes([TAG & 0x7F | 0x80, TAG >> 7 & 0x7F | 0x80, TAG >> 14 & 0x7F | 0x80, TAG >> 21])
    fields = b"\x03\x05\x01a" + tag + b"\x10" + ONE + b"\xff\xff\xff\x7f\x02bc"
    assert passed == frame[:start] + fields + frame[start + 1 :]


def test_other_requests_stay_as_they_are() -> None:
    for frame in (frame_of(2), encode_request(MetadataRequest([]), 12, 7, "app")[4:]):
        assert PassedProxies(ONE).with_own_id(frame) is frame
        assert not PassedProxies(ONE).is_loop(ids_of(frame))


@pytest.mark.parametrize("cut", [8, 9, 12])
def test_a_header_that_is_cut_off(cut: int) -> None:
    with pytest.raises(DecodeError):
        ids_of(frame_of(4)[:cut])


def test_a_header_of_too_many_tagged_fields() -> None:
    frame = frame_of(4)
    start = frame.index(b"\0", 13)
    for count in (TAGS_MAX, TAGS_MAX + 1):
        section = bytearray()
        put_uvarint(section, count)
        for tag in range(count):
            put_uvarint(section, tag)
            section.append(0)
        tagged = frame[:start] + section + frame[start + 1 :]
        if count == TAGS_MAX:
            assert ids_of(tagged) == b""
        else:
            with pytest.raises(DecodeError, match="10001 tags"):
                ids_of(tagged)
