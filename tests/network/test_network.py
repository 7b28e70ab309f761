"""Links: what arrives, what is lost, and who learns of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from oncelog.broker.network.network import Client, Delivery, LinkDownError, Links, Network
from oncelog.broker.seams.memory_files import ProcessDied
from oncelog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse
from oncelog.wire.schema import Message

REQUEST = AllocateProducerIdsRequest(1, 7)
CLIENT = Client("User:app", "10.0.0.1:4711", "app", "PLAINTEXT", "SASL_PLAINTEXT")


class Waiting:
    """A fetch that waits for `event`, or until its time is over."""

    timeout_s = 0.5

    def __init__(self) -> None:
        self.event = trio.Event()

    def respond(self, *, is_over: bool) -> FetchResponse:
        return FetchResponse(session_id=8 if is_over else 7)


class Receiver:
    """Notes what arrives; responds when `responds` is set, and to a fetch as `answer` does."""

    def __init__(self) -> None:
        self.answer: FetchResponse | Waiting = FetchResponse(session_id=1)
        self.dies = False
        self.arrived: list[Delivery] = []
        self.responds = trio.Event()
        self.responds.set()

    async def receive(self, delivery: Delivery) -> Message:
        self.arrived.append(delivery)
        await self.responds.wait()
        return AllocateProducerIdsResponse(producer_id_start=len(self.arrived))

    def fetch(self, request: FetchRequest) -> FetchResponse | Waiting:
        if self.dies:
            raise ProcessDied("a log")
        return self.answer


def run(scenario: Callable[[Network, Receiver, trio.Nursery], Awaitable[None]], *, encodes: bool) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            network, receiver = Network(encodes=encodes), Receiver()
            network.attach(2, receiver.receive, nursery, receiver.fetch)
            await scenario(network, receiver, nursery)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("encodes", [False, True])
def test_a_request_and_its_response_arrive(encodes: bool) -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        response = await Links(network, 1).to(2).call(REQUEST, 0, CLIENT)
        assert response.producer_id_start == 1
        [delivery] = receiver.arrived
        assert delivery == Delivery(1, REQUEST, 0, CLIENT)
        assert (delivery.request is REQUEST) is not encodes

    run(scenario, encodes=encodes)


def test_a_node_that_does_not_run_is_noticed_at_once() -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        with pytest.raises(LinkDownError, match="node 3 does not run"):
            await network.link(1, 3).call(REQUEST, 0)
        changed = network.changed
        network.attach(3, receiver.receive, nursery, receiver.fetch)
        await changed.wait()
        await network.link(1, 3).call(REQUEST, 0)

    run(scenario, encodes=False)


def test_a_cut_loses_requests_of_one_direction_only() -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        network.cut(1, 2)
        with pytest.raises(LinkDownError):
            await network.link(1, 2).call(REQUEST, 0)
        assert not receiver.arrived
        await network.link(3, 2).call(REQUEST, 0)
        network.heal()
        await network.link(1, 2).call(REQUEST, 0)
        assert [delivery.source for delivery in receiver.arrived] == [3, 1]

    run(scenario, encodes=False)


def test_a_request_whose_response_is_lost_had_its_effect() -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        network.cut(2, 1)
        with pytest.raises(LinkDownError):
            await network.link(1, 2).call(REQUEST, 0)
        assert len(receiver.arrived) == 1
        with pytest.raises(LinkDownError):  # the connection is lost, and none can be made
            await network.link(1, 2).call(REQUEST, 0)
        assert len(receiver.arrived) == 1
        network.heal()
        await network.link(1, 2).call(REQUEST, 0)

    run(scenario, encodes=False)


@pytest.mark.parametrize("breaks", ["cut there", "cut back", "node ends"])
def test_who_waits_learns_at_once_of_a_broken_link(breaks: str) -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        receiver.responds = trio.Event()
        lost = trio.Event()

        async def call() -> None:
            with pytest.raises(LinkDownError):
                await network.link(1, 2).call(REQUEST, 0)
            lost.set()

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        assert receiver.arrived
        assert not lost.is_set()
        if breaks == "cut there":
            network.cut(1, 2)
        elif breaks == "cut back":
            network.cut(2, 1)
        else:
            network.detach(2)
        with trio.fail_after(1):
            await lost.wait()

    run(scenario, encodes=False)


def test_a_delay_is_one_of_its_direction() -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        network.delay(1, 2, 2.0)
        network.delay(2, 1, 0.5)
        began = trio.current_time()
        await network.link(1, 2).call(REQUEST, 0)
        assert trio.current_time() - began == pytest.approx(2.5)
        began = trio.current_time()
        await network.link(3, 2).call(REQUEST, 0)
        assert trio.current_time() == began

    run(scenario, encodes=False)


FETCH = FetchRequest(max_wait_ms=500)


@pytest.mark.parametrize("encodes", [False, True])
def test_a_fetch_gets_what_there_is_at_once_or_later_or_when_its_time_is_over(encodes: bool) -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        link = network.link(1, 2)
        assert (await link.fetch(FETCH, 17)).session_id == 1

        receiver.answer = Waiting()
        nursery.start_soon(set_later, receiver.answer.event)
        began = trio.current_time()
        assert (await link.fetch(FETCH, 17)).session_id == 7
        assert trio.current_time() - began == pytest.approx(0.2)

        receiver.answer = Waiting()
        assert (await link.fetch(FETCH, 17)).session_id == 8

    async def set_later(event: trio.Event) -> None:
        await trio.sleep(0.2)
        event.set()

    run(scenario, encodes=encodes)


def test_a_fetch_lets_other_tasks_run_even_if_it_is_answered_at_once() -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        others = trio.Event()

        async def run_once() -> None:
            others.set()

        nursery.start_soon(run_once)
        while not others.is_set():
            await network.link(1, 2).fetch(FETCH, 17)

    run(scenario, encodes=False)


@pytest.mark.parametrize("breaks", ["cut there", "cut back", "node ends"])
def test_a_fetch_that_waits_learns_at_once_of_a_broken_link(breaks: str) -> None:
    async def scenario(network: Network, receiver: Receiver, nursery: trio.Nursery) -> None:
        receiver.answer = Waiting()
        lost = trio.Event()

        async def fetch() -> None:
            with pytest.raises(LinkDownError):
                await network.link(1, 2).fetch(FETCH, 17)
            lost.set()

        nursery.start_soon(fetch)
        await trio.testing.wait_all_tasks_blocked()
        if breaks == "cut there":
            network.cut(1, 2)
        elif breaks == "cut back":
            network.cut(2, 1)
        else:
            network.detach(2)
        began = trio.current_time()
        await lost.wait()
        assert trio.current_time() == began

    run(scenario, encodes=False)


def test_a_node_that_dies_of_a_fetch_does_not_take_its_follower_with_it() -> None:
    async def main() -> None:
        receiver = Receiver()
        receiver.dies = True
        network = Network()
        deaths: list[BaseException] = []

        async def live(task_status: trio.TaskStatus[None]) -> None:
            try:
                async with trio.open_nursery() as nursery:
                    network.attach(2, receiver.receive, nursery, receiver.fetch)
                    task_status.started()
                    await trio.sleep_forever()
            except BaseExceptionGroup as errors:
                deaths.extend(errors.exceptions)

        async with trio.open_nursery() as nursery:
            await nursery.start(live)
            with pytest.raises(LinkDownError, match="dies"):
                await network.link(1, 2).fetch(FETCH, 17)
        assert [type(death) for death in deaths] == [ProcessDied]

    trio.run(main)
