"""A broker that was started and never closed gives a ResourceWarning when it is forgotten."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings

import pytest

import oncelog


def forgotten(process: bool) -> str:
    """Start a broker and forget it; return what it was called."""
    kafka = oncelog.Broker(process=process)
    kafka.start()
    kafka.kill()
    kafka.start()
    return repr(kafka)


async def forget_an_async_one() -> None:
    kafka = oncelog.AsyncBroker()
    await kafka.start()


def warned(caught: list[warnings.WarningMessage]) -> list[str]:
    gc.collect()
    return [str(one.message) for one in caught if one.category is ResourceWarning]


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
def test_a_broker_that_is_forgotten_warns(process: bool) -> None:
    with warnings.catch_warnings(record=True, action="always") as caught:
        name = forgotten(process)
        assert warned(caught) == [
            f"{name} was started and never closed: use it in a with statement, or call close()"
        ]


def test_a_forgotten_async_broker_warns() -> None:
    with warnings.catch_warnings(record=True, action="always") as caught:
        asyncio.run(forget_an_async_one())
        [said] = warned(caught)
    assert said.startswith("<AsyncBroker 127.0.0.1:")


def test_brokers_that_were_closed_or_never_started_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        oncelog.Broker()
        with oncelog.Broker() as kafka:
            pass
        del kafka
        other = oncelog.Broker()
        other.start()
        other.close()
        del other
        gc.collect()


@pytest.mark.slow
def test_a_broker_that_lives_until_the_interpreter_ends_does_not_warn() -> None:
    script = "import oncelog; kafka = oncelog.Broker(); kafka.start(); kafka.produce('t', b'v')"
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
