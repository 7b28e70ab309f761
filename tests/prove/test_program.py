"""A program under proof that is disturbed while it starts."""

from __future__ import annotations

import pathlib

import pytest
import trio
import trio.testing

from oncelog.broker.prove.plan import ProofPlan
from oncelog.broker.prove.trials.program import Place, Program

PLAN = ProofPlan(("sleep", "600"), {"orders": 1}, {"orders": ({"value": "1"},)}, ("orders",))


@pytest.mark.parametrize("name", ["kill", "terminate"])
def test_a_signal_that_comes_before_the_start_is_over_ends_it(tmp_path: pathlib.Path, name: str) -> None:
    """Seen with a program in Go, whose first request came before the thread that had started it was heard of: it was
    not killed, and the trial waited for its end for ever.
    """

    async def main() -> None:
        program = Program(PLAN, 1, Place(str(tmp_path / "dir"), "trial1"), {})
        threads = trio.to_thread.current_default_thread_limiter()
        taken = [object() for _ in range(int(threads.available_tokens))]
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for one in taken:
                    threads.acquire_on_behalf_of_nowait(one)
                nursery.start_soon(program.start, "127.0.0.1:9092")
                await trio.testing.wait_all_tasks_blocked()
                assert program.group is None
                getattr(program, name)()
                for one in taken:
                    threads.release_on_behalf_of(one)
            await program.wait_ended()
        assert program.exit_code in (-9, -15)

    trio.run(main)
