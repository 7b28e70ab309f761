"""One suite for every clock of the broker; then what moving one does."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from oncelog.broker.seams.clock import Clock, MovableClock, SystemClock, real_time
from tests.harness.clocks import VirtualWall
from tests.harness.simulation import deterministic


def moved() -> MovableClock:
    clock = MovableClock(VirtualWall(1_000).now_ms)
    clock.advance(86_400)
    return clock


def thawed() -> MovableClock:
    """Frozen for a while, and moved meanwhile."""
    clock = MovableClock(VirtualWall(1_000).now_ms, ahead_ms=-5_000)
    clock.freeze()
    clock.advance(0.1)
    clock.resume()
    return clock


CLOCKS: dict[str, Callable[[], Clock]] = {
    "system": SystemClock,
    "movable": MovableClock,
    "moved": moved,
    "thawed": thawed,
    "virtual": lambda: VirtualWall(0),
}


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Under a virtual clock that jumps to the next deadline, with a deterministic order of tasks."""
    deterministic(main)


@pytest.fixture(params=CLOCKS)
def make(request: pytest.FixtureRequest) -> Callable[[], Clock]:
    return CLOCKS[request.param]


def test_sleep_takes_that_long(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        clock = make()
        for seconds in (0, 0.25, 3600):
            ours, trios = clock.monotonic(), trio.current_time()
            await clock.sleep(seconds)
            assert clock.monotonic() - ours == pytest.approx(seconds)
            assert trio.current_time() - trios == pytest.approx(seconds)
            await clock.pause(seconds)
            assert clock.monotonic() - ours == pytest.approx(2 * seconds)
            ours = clock.monotonic() - seconds
        await clock.sleep_until(clock.monotonic() + 5)
        assert clock.monotonic() - ours == pytest.approx(3605)

    run(main)


def test_a_deadline_in_the_past_is_a_checkpoint(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        clock = make()
        waits: list[Callable[[], Awaitable[None]]] = [
            lambda: clock.sleep(0),
            lambda: clock.pause(0),
            lambda: clock.sleep_until(clock.monotonic() - 1),
        ]
        for wait in waits:
            before = trio.current_time()
            with trio.testing.assert_checkpoints():
                await wait()
            assert trio.current_time() == before

    run(main)


def test_a_negative_sleep_is_refused(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="negative"):
            await make().sleep(-1)

    run(main)


def test_a_wait_ends_at_its_deadline(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        clock = make()
        before = trio.current_time()
        with clock.move_on_at(clock.monotonic() + 2) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        with clock.move_on_after(3) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert trio.current_time() - before == pytest.approx(5)

    run(main)


def test_a_wait_that_is_over_in_time_is_not_cancelled(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        clock = make()
        for deadline in (clock.monotonic() + 2, math.inf):
            with clock.move_on_at(deadline) as scope:
                await trio.sleep(1)
            assert not scope.cancelled_caught
            await trio.sleep(10)
        with pytest.raises(KeyError), clock.move_on_after(1):
            raise KeyError

    run(main)


def test_a_cancelled_sleep_ends(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        clock, before = make(), trio.current_time()
        with trio.move_on_after(1) as scope:
            await clock.sleep(100)
        assert scope.cancelled_caught
        assert trio.current_time() - before == 1

    run(main)


def test_the_wall_time_goes_on(make: Callable[[], Clock]) -> None:
    async def main() -> None:
        clock = make()
        first = clock.now_ms()
        assert isinstance(first, int)
        await clock.sleep(0.01)
        assert clock.now_ms() >= first

    trio.run(main)


def test_the_system_clock_tells_the_machines_time() -> None:
    assert abs(SystemClock().now_ms() / 1000 - time.time()) < 60
    assert abs(MovableClock().now_ms() / 1000 - time.time()) < 60


# --- moving it


def test_wall_time_and_monotonic_time_move_together() -> None:
    async def main() -> None:
        clock = MovableClock(VirtualWall(1_000).now_ms)
        monotonic = clock.monotonic()
        clock.advance(0.5)
        clock.advance(7 * 86_400)
        assert clock.now_ms() == 1_500 + 7 * 86_400_000
        assert clock.monotonic() - monotonic == 7 * 86_400 + 0.5

    run(main)


def test_waits_whose_deadline_is_passed_end_without_waiting() -> None:
    async def main() -> None:
        clock = MovableClock()
        ended: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            ended.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, "hour", 3600)
            nursery.start_soon(sleeper, "two hours", 7200)
            nursery.start_soon(sleeper, "never", math.inf)
            await trio.testing.wait_all_tasks_blocked()
            before = trio.current_time()
            clock.advance(3599)
            await trio.testing.wait_all_tasks_blocked()
            assert ended == []
            clock.advance(1)
            await trio.testing.wait_all_tasks_blocked()
            assert ended == ["hour"]
            assert trio.current_time() == before
            await trio.sleep(3599)
            assert ended == ["hour"]
            await trio.sleep(2)
            assert ended == ["hour", "two hours"]
            nursery.cancel_scope.cancel()

    run(main)


def test_a_jump_ends_the_outer_wait_whose_deadline_it_passes() -> None:
    async def main() -> None:
        clock = MovableClock()
        clock.advance(10)

        async def jump() -> None:
            await trio.testing.wait_all_tasks_blocked()
            clock.advance(100)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(jump)
            with clock.move_on_after(50) as outer, clock.move_on_after(200) as inner:
                before = trio.current_time()
                await trio.sleep_forever()
            assert trio.current_time() == before
            assert outer.cancelled_caught
            assert not inner.cancelled_caught

    run(main)


def test_real_time_is_not_moved() -> None:
    async def main() -> None:
        clock = MovableClock()
        with real_time.move_on_after(1) as scope:
            clock.advance(1_000)
            await trio.testing.wait_all_tasks_blocked()
        assert not scope.cancelled_caught

    run(main)


@pytest.mark.parametrize("seconds", [-1, -1e-9, math.nan, math.inf])
def test_time_does_not_go_back(seconds: float) -> None:
    clock = MovableClock(VirtualWall(0).now_ms)
    with pytest.raises(ValueError, match="only ahead"):
        clock.advance(seconds)
    assert clock.now_ms() == 0


def test_setting_wall_time_moves_all_time() -> None:
    async def main() -> None:
        clock = MovableClock(VirtualWall(1_000).now_ms)
        monotonic = clock.monotonic()
        clock.set(61_000)
        assert (clock.now_ms(), clock.monotonic() - monotonic, clock.ahead_ms) == (61_000, 60, 60_000)
        clock.set(61_000)
        with pytest.raises(ValueError, match=r"set back.*1\.5 s"):
            clock.set(59_500)
        assert clock.now_ms() == 61_000

    run(main)


def test_a_clock_begins_frozen_whatever_the_machines_time_does() -> None:
    async def main() -> None:
        wall = itertools.count(1_000)
        clock = MovableClock.frozen_at(61_000, lambda: next(wall))
        assert (clock.is_frozen, clock.now_ms(), clock.now_ms()) == (True, 61_000, 61_000)
        clock.advance(1)
        assert clock.now_ms() == 62_000
        clock.resume()
        assert clock.now_ms() == 62_001

    run(main)


def test_frozen_time_stands_until_it_is_moved_or_resumed() -> None:
    async def main() -> None:
        clock = MovableClock(VirtualWall(1_000).now_ms)
        clock.advance(100)
        clock.freeze()
        frozen = clock.now_ms(), clock.monotonic()
        await trio.sleep(3600)
        clock.freeze()
        assert clock.is_frozen
        assert (clock.now_ms(), clock.monotonic()) == frozen == (101_000, frozen[1])
        clock.advance(0.25)
        clock.set(101_500)
        assert (clock.now_ms(), clock.monotonic()) == (101_500, frozen[1] + 0.5)
        clock.resume()
        clock.resume()
        assert not clock.is_frozen
        assert (clock.now_ms(), clock.monotonic()) == (101_500, pytest.approx(frozen[1] + 0.5))
        await trio.sleep(2)
        assert (clock.now_ms(), clock.monotonic()) == (103_500, pytest.approx(frozen[1] + 2.5))

    run(main)


def test_waits_follow_frozen_time() -> None:
    async def main() -> None:
        clock = MovableClock()
        ended: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            ended.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, "before", 10)
            nursery.start_soon(sleeper, "long", 100)
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(9)
            clock.freeze()
            nursery.start_soon(sleeper, "during", 20)
            nursery.start_soon(sleeper, "none", 0)
            await trio.sleep(1_000)
            assert ended == ["none"]
            clock.advance(1)
            await trio.testing.wait_all_tasks_blocked()
            assert ended == ["none", "before"]
            clock.resume()
            before = trio.current_time()
            await trio.sleep(18.9)
            assert ended == ["none", "before"]
            await trio.sleep(0.2)
            assert ended == ["none", "before", "during"]
        assert trio.current_time() - before == pytest.approx(90)

    run(main)


def test_a_jump_to_a_deadline_reaches_it() -> None:
    """Also where the sum of two floats would not."""

    async def main() -> None:
        clock = MovableClock()
        await trio.sleep(1e9 / 7)
        clock.freeze()
        rng = random.Random(1)
        for _ in range(1000):
            deadline = clock.monotonic() + (1 + rng.random()) * 10 ** rng.randrange(-6, 6)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(clock.sleep_until, deadline)
                await trio.testing.wait_all_tasks_blocked()
                assert not clock.has_due()
                clock.advance_to(deadline)
                assert clock.has_due()
            assert clock.monotonic() == deadline
            clock.advance_to(deadline - 1)
            assert clock.monotonic() == deadline

    run(main)


@pytest.mark.parametrize("frozen", [False, True])
def test_pauses_can_be_ended_and_no_other_wait(frozen: bool) -> None:
    async def main() -> None:
        clock = MovableClock()
        rounds = 0

        async def work() -> None:
            nonlocal rounds
            while True:
                await clock.pause(300)
                rounds += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            nursery.start_soon(clock.sleep, 1)
            if frozen:
                clock.freeze()
            before = clock.monotonic()
            for expected in (0, 1, 2):
                await trio.testing.wait_all_tasks_blocked()
                assert rounds == expected
                clock.end_pauses()
            assert (clock.monotonic(), len(nursery.child_tasks)) == (before, 2)
            nursery.cancel_scope.cancel()

    run(main)
