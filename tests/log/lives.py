"""Lives of a log manager that end before their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import trio

from tests.log.rig import DATA, Rig, append, run
from tests.sim.files import SimulatedCrash

Crash = Literal["process", "power"]


OTHER_ID = bytes(range(2, 18))


CLEAN_MARK = f"{DATA}/.kafka_cleanshutdown"


def make_unclean(rig: Rig, **batches: int) -> None:
    """Run a process that appends to partitions 0 of these topics, flushes nothing, and dies."""

    async def main() -> None:
        manager = rig.manager()
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            for topic, number in batches.items():
                for _ in range(number):
                    append(manager.get(topic, 0), bytes(100))
            nursery.cancel_scope.cancel()
        rig.sim.crash("process")

    run(main)


def dies(life: Callable[[], object]) -> bool:
    """Whether the simulated crash came before the end."""
    try:
        life()
    except BaseException as error:
        inner: BaseException = error
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        if not isinstance(inner, SimulatedCrash):
            raise
        return True
    return False
