"""`Runs`: the runs of a broker, a proxy or a node under control."""

import pytest
import trio
import trio.testing

from oncelog.broker.control.options import checked_options


def test_what_is_cancelled_before_its_first_start_ends_cancelled() -> None:
    """Ctrl-C while `oncelog prove` begins a trial: the task of the broker may end before its starter goes on."""
    ended = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            broker = checked_options().controlled()
            await nursery.start(broker.run)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.Cancelled):
                await broker.start()
            ended.append(broker)

    trio.run(main)
    assert ended
