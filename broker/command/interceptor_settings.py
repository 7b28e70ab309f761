"""`InterceptorSettings`: the trace and the filters that a command line asks for, of the broker or the proxy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncelog.broker.config.options import UsageError, closest, flag_of, origin_of, variable_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from oncelog.broker.dispatch.policies import Interceptor
    from oncelog.broker.trace.trace import Selection, Trace

WILDCARDS = "*?["


@dataclass(frozen=True)
class InterceptorSettings:
    """What a command line asks to be put between clients and the broker, or the cluster behind the proxy."""

    filters: tuple[Interceptor, ...] = ()
    """The one nearest to the clients first."""
    traced: Selection | None = None
    """Which requests are told of; None for no trace."""
    with_records: bool = False
    """Whether the trace shows keys and values."""

    def trace(self, write: Callable[[str], None], place: str) -> Trace | None:
        """Return the trace, None if none is asked for. ``place``: see `Trace`."""
        if self.traced is None:
            return None
        from oncelog.broker.trace.trace import Trace

        return Trace(write, self.traced, with_records=self.with_records, place=place)


def interceptor_settings(options: argparse.Namespace, environment: Mapping[str, str]) -> InterceptorSettings:
    """Return what options, and the environment, ask for. Loads the filters. Raises UsageError."""

    def listed(option: str) -> tuple[str, ...]:
        given = getattr(options, option)
        in_variable = environment.get(variable_of(option), "").splitlines()
        return tuple(given or [line for line in in_variable if line])

    def chosen(option: str) -> bool:
        return bool(getattr(options, option) or _is_true(environment, option))

    clients, apis, topics, groups = (
        listed(option) for option in ("trace_client", "trace_api", "trace_topic", "trace_group")
    )
    with_records = chosen("trace_records")
    traced = None
    if chosen("trace") or with_records or clients or apis or topics or groups:
        from oncelog.broker.trace.trace import Selection

        for api in apis:
            _check_api(api, origin_of("trace_api", options.trace_api))
        traced = Selection(clients, apis, topics, groups)
    return InterceptorSettings(_filters(listed("filter")), traced, with_records)


def _is_true(environment: Mapping[str, str], option: str) -> bool:
    variable = variable_of(option)
    text = environment.get(variable, "").lower()
    if text not in ("", "true", "false", "1", "0"):
        raise UsageError(f"{variable}={text}: expected true or false")
    return text in ("true", "1")


def _check_api(api: str, origin: str) -> None:
    from oncelog.broker.handlers.table import api_names

    if api in api_names() or any(mark in api for mark in WILDCARDS):
        return
    meant = closest(api, list(api_names()))
    hint = f"did you mean {meant}?" if meant else "expected Kafka's name of an API, such as Produce"
    raise UsageError(f"{origin}={api}: {hint}")


def _filters(texts: tuple[str, ...]) -> tuple[Interceptor, ...]:
    if not texts:
        return ()
    from oncelog.broker.filters.loading import FilterError, load_filter

    try:
        return tuple(load_filter(text) for text in texts)
    except FilterError as error:
        raise UsageError(f"{flag_of('filter')}: {error}") from None
