"""`oncelog.AsyncBroker` in asyncio and in Trio; what it shares with `Broker` is tested there."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import trio

import oncelog


async def use() -> None:
    async with oncelog.AsyncBroker(topics={"orders": 3}) as kafka:
        address = kafka.bootstrap_servers
        assert await kafka.is_running
        await kafka.kill()
        assert not await kafka.is_running
        await kafka.start()
        assert await kafka.reset() == []
        assert kafka.bootstrap_servers == address
    with pytest.raises(oncelog.NotRunningError, match="was closed"):
        await kafka.stop()


def test_asyncio() -> None:
    asyncio.run(use())


def test_trio() -> None:
    trio.run(use)


def test_it_has_the_names_of_the_synchronous_one() -> None:
    def members(kind: type) -> dict[str, object]:
        return {
            name: list(inspect.signature(member).parameters) if callable(member) else None
            for name, member in vars(kind).items()
            if not name.startswith("_")
        }

    assert members(oncelog.AsyncBroker) == members(oncelog.Broker)


def test_a_blocking_wait_in_an_event_loop_says_what_it_did() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:

        async def wait() -> None:
            kafka.topic("orders").wait_for_records(1, timeout=0)

        with pytest.raises(oncelog.WaitTimeoutError) as raised:
            trio.run(wait)
        assert "use AsyncBroker" in raised.value.__notes__[0]
        with pytest.raises(oncelog.WaitTimeoutError) as raised:
            asyncio.run(wait())
        assert "use AsyncBroker" in raised.value.__notes__[0]
        with pytest.raises(oncelog.WaitTimeoutError) as raised:
            kafka.topic("orders").wait_for_records(1, timeout=0)
        assert not hasattr(raised.value, "__notes__")


def test_other_tasks_run_while_a_call_waits() -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(tick())
        async with oncelog.AsyncBroker():
            pass
        other.cancel()
        assert ticks > 1

    asyncio.run(main())
