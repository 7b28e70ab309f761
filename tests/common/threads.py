"""The end of a thread that runs a client: a close that does not return fails its test, which says where it stands."""

import sys
import threading
import traceback

END_S = 120.0


def join(thread: threading.Thread) -> None:
    """Wait until a thread has ended. Raises AssertionError with its stack if it has not after `END_S`.

    The thread is a daemon: one that never ends must not keep pytest's process alive.
    """
    assert thread.daemon, thread
    thread.join(END_S)
    frame = sys._current_frames().get(thread.ident or 0)
    if thread.is_alive() and frame is not None:
        raise AssertionError(
            f"{thread.name} has not ended after {END_S:.0f} s:\n{''.join(traceback.format_stack(frame))}"
        )
