"""LogManager: partitions that are deleted, and what is left of them."""

from __future__ import annotations

from itertools import count

import pytest
import trio

from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.log_manager import (
    CLEAN_MARK,
    DATA,
    OTHER_ID,
    TOPIC_ID,
    Crash,
    LogManagerHarness,
    append,
    dies,
    offsets_in,
    run,
)

# --- creating and deleting


def test_a_deleted_partition_is_renamed_at_once_and_removed_later() -> None:
    async def main() -> None:
        harness = LogManagerHarness(keys={"log.segment.delete.delay.ms": "60000"})
        harness.add_topic("t", 2)
        harness.add_topic("u", topic_id=OTHER_ID)
        async with harness.running() as manager:
            log = manager.get("t", 0)
            append(log)
            append(manager.get("t", 1))
            append(manager.get("u", 0))
            read = log.read(0, 1000, minimum_one=True, up_to=1)
        async with harness.running() as manager:
            log = manager.get("t", 0)
            read = log.read(0, 1000, minimum_one=True, up_to=1)
            del harness.topics["t"]
            manager.delete("t", 0)  # open
            manager.delete("t", 1)  # not open
            names = [name for name in harness.sim.listdir(DATA) if name.startswith("t-")]
            assert len(names) == 2
            for name in names:
                partition, _, suffix = name.partition(".")
                assert partition in ("t-0", "t-1")
                hexadecimal, _, word = suffix.partition("-")
                assert (len(hexadecimal), word) == (32, "delete")
                int(hexadecimal, 16)
            with pytest.raises(KafkaError) as caught:
                append(log)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(KafkaError):
                manager.get("t", 0)
            await trio.sleep(59)
            assert len([name for name in harness.sim.listdir(DATA) if name.startswith("t-")]) == 2
            await trio.sleep(2)
            assert [name for name in harness.sim.listdir(DATA) if name.startswith(("t-", "u-"))] == ["u-0"]
            read.records.release()  # type: ignore[union-attr]
            assert manager.get("u", 0).log_end_offset == 1

    run(main)


def test_what_is_left_of_deleted_partitions_goes_after_the_next_start() -> None:
    async def main() -> None:
        harness = LogManagerHarness()
        harness.add_topic("t")
        async with harness.running() as manager:
            append(manager.get("t", 0))
            del harness.topics["t"]
            manager.delete("t", 0)
        assert any(name.endswith("-delete") for name in harness.sim.listdir(DATA))
        async with harness.running():
            await trio.sleep(61)
            assert not any(name.startswith("t-") for name in harness.sim.listdir(DATA))

    run(main)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_at_every_step_of_a_deletion(kind: Crash) -> None:
    """A topic is deleted and made anew under its name: of the old one nothing is ever seen."""

    async def prepare(harness: LogManagerHarness) -> None:
        async with harness.running() as manager:
            log = manager.get("t", 0)
            for _ in range(20):
                append(log)
            log.delete_records(10)
            await log.flush(20)

    async def again(harness: LogManagerHarness) -> None:
        async with harness.running() as manager:
            del harness.topics["t"]
            manager.delete("t", 0)
            harness.add_topic("t", topic_id=OTHER_ID)
            append(manager.get("t", 0))

    def crash_at(step: int) -> bool:
        harness = LogManagerHarness(seed=step)
        harness.add_topic("t")
        run(lambda: prepare(harness))
        harness.sim.crash_at = harness.sim.steps + step
        died = dies(lambda: run(lambda: again(harness)))
        harness.sim.crash(kind)
        if "t" not in harness.topics:  # it died between the two; the topic is made anew now
            harness.add_topic("t", topic_id=OTHER_ID)

        async def check() -> None:
            async with harness.running() as manager:
                log = manager.get("t", 0)
                if log.topic_id == TOPIC_ID:
                    assert harness.topics["t"].topic_id == TOPIC_ID
                    assert (log.log_start_offset, log.log_end_offset) == (10, 20)
                else:
                    assert log.log_start_offset == 0
                    assert log.log_end_offset == len(offsets_in(log)) <= 1
                    assert log.recovery_point <= log.log_end_offset
                await trio.sleep(100)
                names = [name for name in harness.sim.listdir(DATA) if name.endswith("-delete")]
                assert names == []

        run(check)
        return died

    assert next(step for step in count() if not crash_at(step)) > 15


def test_an_earlier_topics_directory_is_moved_aside() -> None:
    for clean in (True, False):
        harness = LogManagerHarness()
        harness.add_topic("t")
        harness.add_topic("gone", topic_id=OTHER_ID)

        async def main(harness: LogManagerHarness = harness, clean: bool = clean) -> None:
            async with harness.running() as manager:
                append(manager.get("t", 0))
                append(manager.get("gone", 0))
            if not clean:
                harness.sim.remove(CLEAN_MARK)
            harness.add_topic("t", topic_id=bytes(range(3, 19)))
            del harness.topics["gone"]
            async with harness.running() as manager:
                assert manager.get("t", 0).log_end_offset == 0
                names = harness.sim.listdir(DATA)
                assert sorted(name.partition(".")[0] for name in names if name.endswith("-stray")) == [
                    "gone-0",
                    "t-0",
                ]
            async with harness.running():
                await trio.sleep(100)
                assert len([name for name in harness.sim.listdir(DATA) if name.endswith("-stray")]) == 2

        run(main)
