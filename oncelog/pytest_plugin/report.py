"""Sections about a failed test's brokers in its report."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from oncelog import Broker, Proxy, Request

LINES_MAX = 15
"""How many lines of each kind are shown, the latest ones."""
LINE_CHARS_MAX = 200
REQUESTS_MAX = 2000
"""How many of the latest requests are looked through."""
AHEAD_SHOWN_S = 1.0
TIMEOUT_S = 5.0
"""Seconds after which a broker that has not answered everything counts as hung."""
WARNINGS = (" WARNING ", " ERROR ", " CRITICAL ")


def sections(brokers: Mapping[str, Broker | Proxy]) -> list[tuple[str, str]]:
    """Return a heading and a text for each broker, by the fixture's name."""
    return [(f"{name}: {broker!r}", _text(broker)) for name, broker in brokers.items()]


def hide_frames() -> None:
    """Leave the frames of oncelog's public classes out of the tracebacks of errors that they raise for the test author.

    pytest looks for ``__tracebackhide__`` in a frame's variables and in its module's.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("oncelog.broker.embedded"):
            vars(module)["__tracebackhide__"] = _is_for_the_author


def _is_for_the_author(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    from oncelog import KafkaError, OncelogError

    return isinstance(excinfo.value, OncelogError | KafkaError | AssertionError)


def _text(broker: Broker | Proxy) -> str:
    """Return the answers that came from the broker within `TIMEOUT_S`."""
    lines: list[str] = []

    def ask() -> None:
        for part in PARTS:
            try:
                lines.extend(part(broker))
            except Exception as error:
                lines.append(f"{part.__name__.strip('_')}: {error}")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if thread.is_alive():
        lines.append(f"the broker did not answer within {TIMEOUT_S:g} s")
    return "\n".join(map(_shortened, lines))


def _shortened(line: str) -> str:
    """Return the line, of a traceback its begin and its end, which says what was wrong."""
    first, *others = line.rstrip().splitlines() or [""]
    if others:
        first = f"{first} ... {others[-1].strip()}"
    return first if len(first) <= LINE_CHARS_MAX else first[: LINE_CHARS_MAX - 3] + "..."


def _seed(broker: Broker | Proxy) -> Iterable[str]:
    yield f"seed {broker.seed} (--kafka-seed={broker.seed} draws the same random ids and delays)"


def _state(broker: Broker | Proxy) -> Iterable[str]:
    if not broker.is_running:
        yield "it does not run: it was stopped, killed or lost its power, or it failed"


def _nodes(broker: Broker | Proxy) -> Iterable[str]:
    """Say which of several nodes are missing, and which partitions lack a leader or a replica in sync."""
    from oncelog import Broker, UnsupportedError
    from oncelog.pytest_plugin.real_cluster import Cluster

    if not isinstance(broker, Broker) or isinstance(broker, Cluster) or not broker.is_running:
        return
    try:
        nodes = broker.nodes
    except UnsupportedError:
        return
    for node_id, node in nodes.items():
        info = node.info
        if not info.is_running or info.is_fenced:
            yield f"node {node_id} {'is fenced' if info.is_running else 'does not run'}"
    lines = []
    for topic in broker.topics:
        for one in broker.topic(topic).partitions:
            if one.leader is None or len(one.isr) < len(one.replicas):
                leader = "no leader" if one.leader is None else f"leader {one.leader}"
                lines.append(
                    f"{topic}-{one.partition}: {leader}, epoch {one.leader_epoch}, in sync {list(one.isr)} of "
                    f"{[replica.node for replica in one.replicas]}"
                )
    yield from _latest("partitions that are not whole", lines)


def _clients(broker: Broker | Proxy) -> Iterable[str]:
    from oncelog.pytest_plugin.left_clients import described

    earlier, new = described(broker)
    yield from _latest("clients that were there before the test", earlier)
    yield from _latest("clients of the test", new)


def _rules(broker: Broker | Proxy) -> Iterable[str]:
    rules = broker.faults.rules
    yield from _latest("rules that fired", [str(rule) for rule in rules if rule.fired])
    yield from _latest("rules that never fired", [str(rule) for rule in rules if not rule.fired])


def _warnings(broker: Broker | Proxy) -> Iterable[str]:
    found = [line for line in broker.log_lines if any(level in line for level in WARNINGS)]
    return _latest("warnings", found)


def _clock(broker: Broker | Proxy) -> Iterable[str]:
    from oncelog import Proxy
    from oncelog.pytest_plugin.real_cluster import Cluster

    if isinstance(broker, Proxy | Cluster):
        return
    ahead = broker.clock.now_ms() / 1000 - time.time()
    if ahead > AHEAD_SHOWN_S or broker.clock.is_frozen:
        stands = ", and stands still" if broker.clock.is_frozen else ""
        yield f"its clock is {timedelta(seconds=round(ahead))} ahead of the machine's{stands}"


def _requests(broker: Broker | Proxy) -> Iterable[str]:
    latest = broker.requests(limit=REQUESTS_MAX)
    yield from _latest("last requests", _folded(map(_request, latest)))
    yield from _latest("requests with errors", _folded(_request(one) for one in latest if one.errors))


def _request(request: Request) -> str:
    """Return a request in words, without its number and time."""
    from oncelog.broker.requests.authorization import ANONYMOUS

    named = (
        ("topic", request.topics),
        ("group", request.groups),
        ("transactional_id", request.transactional_ids),
        ("principal", () if request.principal == ANONYMOUS else (request.principal,)),
        ("mechanism", () if request.mechanism is None else (request.mechanism,)),
    )
    node = "" if request.node is None else f" to node {request.node}"
    words = [f"{request.api} v{request.version} of {request.client_id or request.peer}{node}"]
    words += [f"{name}={','.join(values)}" for name, values in named if values]
    return f"{' '.join(words)}: {', '.join(request.errors) or request.outcome}"


def _folded(lines: Iterable[str]) -> list[str]:
    """Return each run of equal lines as one, with their number."""
    counted = ((line, sum(1 for _ in run)) for line, run in groupby(lines))
    return [line if count == 1 else f"{line} (x{count})" for line, count in counted]


def _latest(title: str, lines: list[str]) -> Iterable[str]:
    if lines:
        dropped = len(lines) - LINES_MAX
        yield f"{title}, the last {LINES_MAX} of {len(lines)}:" if dropped > 0 else f"{title}:"
        yield from (f"    {line}" for line in lines[-LINES_MAX:])


PARTS: tuple[Callable[[Any], Iterable[str]], ...] = (
    _seed,
    _state,
    _nodes,
    _clock,
    _requests,
    _clients,
    _rules,
    _warnings,
)
