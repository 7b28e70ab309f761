# Made by .ci/unasync.py from async_api/faults.py: edit that one.
"""`Faults`: the rules of a test for faults between clients and the broker."""

from __future__ import annotations

import pathlib
import warnings
from typing import TYPE_CHECKING, Any, Literal

from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from oncelog.broker.embedded.sync_api.facade import Facade
    from oncelog.broker.faults.state import RuleState
    from oncelog.wire.errors import ErrorCode

WAIT_S = 10.0
"""Seconds that `Rule.wait_fired` waits."""


class Faults:
    """Rules for requests: filters, and an action.

        kafka.faults.on("EndTxn", transactional_id="a").nth(2).drop_response()

    A rule is in force until it is removed, or the broker is reset; it outlives restarts. If several rules match one
    request, all count it, and they act in the order in which they were made. Docs: docs/reference/faults.md.
    """

    def __init__(self, broker: Facade) -> None:
        self._broker = broker

    def on(
        self,
        *apis: str,
        topic: str | Iterable[str] | None = None,
        partition: int | Iterable[int] | None = None,
        group: str | Iterable[str] | None = None,
        transactional_id: str | Iterable[str] | None = None,
        client_id: str | Iterable[str] | None = None,
        version: int | str | None = None,
        listener: str | None = None,
        node: int | Iterable[int] | None = None,
        topic_exists: bool = True,
    ) -> RuleDraft:
        """Begin a rule for requests of these APIs, by Kafka's names (``"Produce"``, ``"EndTxn"``; ``"*"`` for all).

        Only requests that pass every filter match. ``topic``, ``partition``, ``group`` and ``transactional_id``: the
        request has a row that names it. ``version``: 9, "9-11" or "9+". ``node``: it comes to that node, of several; by
        default a rule counts what comes to any. A filter with several values lets any of them pass.
        ``topic_exists=False``: the topic is created only later.
        """
        filters = {
            "topic": topic,
            "partition": partition,
            "group": group,
            "transactional_id": transactional_id,
            "client_id": client_id,
            "version": version,
            "listener": listener,
            "node": node,
        }
        words: dict[str, Any] = {"on": list(apis)}
        for word, value in filters.items():
            if value is not None:
                words[word] = value if isinstance(value, str | int) else list(value)
        if not topic_exists:
            words["topic_exists"] = False
        return RuleDraft(self, words)

    def pause(self, client_id: str) -> Rule:
        """Hold every request of a client, so that it looks dead, until `Rule.release`: a zombie."""
        return self.add({"pause": True, "client_id": client_id})

    def refuse_connections(
        self, listener: str | None = None, *, node: int | Iterable[int] | None = None
    ) -> Rule:
        """Close new connections at once, on this listener or on all, to this node or to any, until `Rule.remove`.
        Open ones stay.
        """
        words: dict[str, Any] = {"refuse_connections": True}
        if listener is not None:
            words["listener"] = listener
        if node is not None:
            words["node"] = node if isinstance(node, int) else list(node)
        return self.add(words)

    def crash_at(
        self,
        point: str,
        *,
        on: str | Iterable[str] | None = None,
        topic: str | Iterable[str] | None = None,
        partition: int | Iterable[int] | None = None,
        group: str | Iterable[str] | None = None,
        transactional_id: str | Iterable[str] | None = None,
        node: int | Iterable[int] | None = None,
        nth: int = 1,
    ) -> Rule:
        """Let the broker die at a crash point, as `Broker.kill` does; `Broker.start` starts it again.

        ``point``: "before" or "after" one of these, in the order in which a transaction comes to them: "partitions"
        (the record that adds some to the transaction), "append" (a producer's batch, or one for a dead-letter queue),
        "offsets" (a commit of offsets, by a transaction or not), "decision" (to commit or to abort), "marker" (one in
        each partition), "completion", "response" (of EndTxn, or of the APIs in ``on``).
        docs/explanation/exactly-once.md says what a start finds after each.
        One more belongs to share groups: "share state" (what was acknowledged in a partition, or came back;
        docs/explanation/share-groups.md). Of several nodes, only the one dies that leads the partition, or sends the
        response: what followers copy does not count; `Node.start` starts it again.

        It happens once, at the ``nth`` write or response that passes the filters. The test's own writes count, too,
        such as `Broker.produce`, a commit of offsets, and what `Clock.advance` ends: the call by which the
        broker dies raises NotRunningError, which names the rule. InvalidArgumentError for a filter that a point does
        not have lists those that it has.
        """
        filters = {
            "on": on,
            "topic": topic,
            "partition": partition,
            "group": group,
            "transactional_id": transactional_id,
            "node": node,
        }
        words: dict[str, Any] = {"crash_at": point, "nth": nth}
        for word, value in filters.items():
            if value is not None:
                words[word] = value if isinstance(value, str | int) else list(value)
        return self.add(words)

    def add(self, rule: Mapping[str, Any]) -> Rule:
        """Add a rule in the words of a file: ``{"on": "EndTxn", "nth": 2, "drop_response": "close"}``.

        Raises InvalidArgumentError, which names the word that makes no sense.
        """
        return Rule(self._broker, self._broker._call("add_rule", rule=dict(rule)))

    def load(self, path: str | os.PathLike[str]) -> list[Rule]:
        """Add the rules of a JSON, TOML or YAML file: all of them, or none.

        Raises OSError, and InvalidArgumentError, which names file, line and word.
        """
        try:
            text = pathlib.Path(path).read_text("utf-8")
        except UnicodeDecodeError:
            raise InvalidArgumentError(f"{path}: it is not UTF-8") from None
        ids = self._broker._call("load_rules", text=text, name=str(path))
        return [Rule(self._broker, rule_id) for rule_id in ids]

    @property
    def rules(self) -> list[RuleState]:
        """What became of each rule so far."""
        states: list[RuleState] = self._broker._call("rules")
        return states

    def clear(self) -> None:
        """Remove all rules. The requests that they hold are released."""
        self._broker._call("clear_rules")

    def assert_all_fired(self) -> None:
        """Raise AssertionError if there is a rule that never fired; it tells what each of them saw. Rules that were
        removed do not count.
        """
        idle = [state for state in self.rules if not state.fired]
        if idle:
            raise AssertionError("rules that never fired:\n" + "\n".join(f"  {state}" for state in idle))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._broker!r}>"


class RuleDraft:
    """A rule that says which requests; which of those (all, if nothing is said); and then, with its last word, what
    happens to them. The last word puts it in force; a RuntimeWarning tells of a draft that never got one.
    """

    def __init__(self, faults: Faults, words: dict[str, Any]) -> None:
        self._faults = faults
        self._words = words
        self._goes_on = False

    def __del__(self) -> None:
        if not self._goes_on:
            text = f"a fault rule that does not say what happens, and so does nothing: {self._words}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._words}, not in force: it lacks what happens, such as drop_response()>"

    def _with(self, **words: Any) -> RuleDraft:
        self._goes_on = True
        return RuleDraft(self._faults, self._words | words)

    def _add(self, **action: Any) -> Rule:
        self._goes_on = True
        return self._faults.add(self._words | action)

    # -- which of the requests that match

    def nth(self, n: int) -> RuleDraft:
        """Only the n-th, counted from 1."""
        return self._with(nth=n)

    def first(self, n: int) -> RuleDraft:
        """The first n."""
        return self._with(first=n)

    def every(self, n: int) -> RuleDraft:
        """Every n-th."""
        return self._with(every=n)

    def always(self) -> RuleDraft:
        """All, as if nothing was said."""
        return self._with(always=True)

    def with_probability(self, p: float, seed: int | None = None) -> RuleDraft:
        """Each with this probability. Without ``seed``, one follows from the broker's; `RuleState.seed` tells it."""
        return self._with(with_probability=p) if seed is None else self._with(with_probability=p, seed=seed)

    # -- what happens to them

    def error(self, error: str | ErrorCode) -> Rule:
        """Refuse them with this error, such as ``"NOT_LEADER_OR_FOLLOWER"``, where Kafka would put it.

        With a filter for rows, only those are refused, where the API has an error for each; the others are handled.
        """
        return self._add(error=getattr(error, "name", error))

    def delay(self, ms: float) -> Rule:
        """Handle them later, by so many milliseconds of real time, 0 or from 1 on. Requests behind them on the
        connection wait, too.
        """
        return self._add(delay_ms=ms)

    def drop_request(self, connection: Literal["close", "hang"] = "close") -> Rule:
        """Never handle them. The connection closes, or stays open and silent ("hang")."""
        return self._add(drop_request=connection)

    def drop_response(self, connection: Literal["close", "hang"] = "close") -> Rule:
        """Handle them, but send no response. The connection closes, or stays open and silent ("hang").

        A Produce with acks=0 has no response, and does not count.
        """
        return self._add(drop_response=connection)

    def close(self) -> Rule:
        """Close the connection in place of handling them, as ``drop_request("close")``."""
        return self._add(close=True)

    def throttle(self, ms: float) -> Rule:
        """Tell the client that it is throttled (``throttle_time_ms``), and read nothing of its connection so long."""
        return self._add(throttle_ms=ms)

    def hold(self) -> Rule:
        """Handle them only after `Rule.release`. Their connections are not read meanwhile."""
        return self._add(hold=True)

    def duplicate(self) -> Rule:
        """Handle them twice, as when a client retries; the second response is sent. For Produce, TxnOffsetCommit and
        EndTxn.
        """
        return self._add(duplicate=True)

    def truncate(self) -> Rule:
        """Send half of the last record batch of each partition. Counts Fetches that have records."""
        return self._add(truncate=True)

    def damage_crc(self) -> Rule:
        """Send a wrong CRC in the first record batch of each partition. Counts Fetches that have records."""
        return self._add(damage_crc=True)


class Rule:
    """A rule in force. At the end of a ``with`` block it is removed."""

    def __init__(self, broker: Facade, rule_id: int) -> None:
        self._broker = broker
        self.id = rule_id

    def __enter__(self) -> Rule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def state(self) -> RuleState:
        """What became of it so far. Raises NotFoundError after its removal."""
        states: list[RuleState] = self._broker._call("rules")
        for state in states:
            if state.id == self.id:
                return state
        raise NotFoundError(f"there is no rule {self.id}: it was removed")

    @property
    def fired(self) -> int:
        """How often it acted. Raises NotFoundError after its removal."""
        return (self.state).fired

    def wait_fired(self, times: int = 1, *, timeout: float = WAIT_S) -> RuleState:
        """Wait until it has fired so many times in all. Returns its state.

        Raises WaitTimeoutError after ``timeout`` seconds; it tells what the rule saw instead.
        """
        state: RuleState = self._broker._call(
            "wait_fired", rule_id=self.id, times=times, timeout=timeout
        )
        return state

    def release(self) -> None:
        """Release the requests that it holds, and let all others pass from now on."""
        self._broker._call("release", rule_id=self.id)

    def remove(self) -> None:
        """Remove it; the requests that it holds are released."""
        self._broker._call("remove_rule", rule_id=self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"
