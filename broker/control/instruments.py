"""`Instruments`: journal, observer and filters of a broker or a proxy under control; `Extras`: those of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.broker.control.journal import Journal
from oncelog.broker.control.log_lines import LogLines
from oncelog.broker.logging.logs import LogOutput, logging_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from oncelog.broker.control.journal import Observer
    from oncelog.broker.dispatch.interfaces import Interceptor
    from oncelog.broker.faults.rule import Rule
    from oncelog.broker.host.served import Served
    from oncelog.broker.logging.logs import Sink
    from oncelog.broker.seams.clock import Clock


@dataclass(frozen=True)
class Extras:
    """The rules, observer, filters and log output that a user gives for all runs."""

    log_output: Callable[[Sink, Clock], LogOutput] = LogOutput
    """Makes the output of each run's log lines, which writes them to the given sink, too."""
    rules: Sequence[Rule] = ()
    """They are there again after a reset."""
    observer: Observer | None = None
    filters: Sequence[Interceptor] = ()


NO_EXTRAS = Extras()


class Instruments:
    """The journal, which keeps ``requests_kept`` requests of each API, and the log lines of all runs."""

    def __init__(self, requests_kept: int, extras: Extras) -> None:
        self.journal = Journal(requests_kept)
        self.lines = LogLines()
        self._extras = extras

    def logging(self, clock: Clock, node_id: int | None = None) -> AbstractContextManager[None]:
        """Return a context in which log lines are kept, which say ``node_id`` if it is given."""
        output = self._extras.log_output(self.lines.sink(node_id), clock)
        if node_id is not None:
            output.fields = {"node": node_id}
        return logging_to(output)

    def attach(self, source: Served, node_id: int | None = None) -> None:
        """Install the journal, the observer and the filters, in this order, before anything else is installed.
        ``node_id``: which one of several nodes it is.
        """
        self.journal.attach(source, node_id)
        if self._extras.observer is not None:
            self._extras.observer.attach(source, node_id)
        if self._extras.filters:
            from oncelog.broker.filters.loading import install_filters

            install_filters(self._extras.filters, source)
