"""`Wanted`: the state that a wait ends with, of a broker, which tells of changes, or a cluster, which is polled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.names import check_word
from oncelog.broker.control.share_types import DeadLetter, ShareGroupInfo
from oncelog.broker.control.types import GroupInfo, Offsets, TransactionInfo

GROUP_STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Reconciling",
)
SHARE_GROUP_STATES = ("Empty", "Stable")
TRANSACTION_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted(Generic[T]):
    """A state of something, such as a group."""

    failed: str
    """The error of a wait that ends without it: ``group g has not got 2 members``."""
    matches: Callable[[T], bool]
    describe: Callable[[T], str]
    """Describes another state, for that error."""


def wanted_group(
    group_id: str,
    *,
    state: str | None = None,
    members: int | None = None,
    lag: int | None = None,
    committed: Offsets | None = None,
) -> Wanted[GroupInfo]:
    """Return a group with that state, that number of members, at most that lag in all, and at least those committed
    offsets. Raises InvalidArgumentError.
    """
    texts = _texts(GROUP_STATES, state=state, members=members, lag=lag, committed=committed)

    def matches(found: GroupInfo) -> bool:
        return (
            (state is None or found.state == state)
            and (members is None or len(found.members) == members)
            and (lag is None or (found.total_lag is not None and found.total_lag <= lag))
            and all(
                found.committed.get(topic, {}).get(partition, -1) >= offset
                for topic, offsets in (committed or {}).items()
                for partition, offset in offsets.items()
            )
        )

    def describe(found: GroupInfo) -> str:
        clients = ", ".join(member.client_id for member in found.members)
        text = f"it is {found.state} with {len(found.members)} members{clients and f' ({clients})'}"
        if lag is not None:
            text += f", lag {found.lag or 'unknown: no offset is committed and no topic subscribed'}"
        if committed is not None:
            text += f", committed {found.committed}"
        return text

    return Wanted(f"group {group_id} has not got {texts}", matches, describe)


def wanted_share_group(
    group_id: str,
    describe: Callable[[ShareGroupInfo], str],
    *,
    state: str | None = None,
    members: int | None = None,
    acquired: int | None = None,
    lag: int | None = None,
) -> Wanted[ShareGroupInfo]:
    """Return a share group with that state, that number of members, which have that number of records, and at most that
    lag in all. Raises InvalidArgumentError.
    """
    texts = _texts(SHARE_GROUP_STATES, state=state, members=members, acquired=acquired, lag=lag)

    def matches(found: ShareGroupInfo) -> bool:
        return (
            (state is None or found.state == state)
            and (members is None or len(found.members) == members)
            and (acquired is None or found.acquired == acquired)
            and (lag is None or (found.total_lag is not None and found.total_lag <= lag))
        )

    return Wanted(f"share group {group_id} has not got {texts}", matches, describe)


def wanted_dead_letters(
    group_id: str, count: int, hints: Callable[[], str] = lambda: ""
) -> Wanted[list[DeadLetter]]:
    """Return at least so many records in a share group's dead-letter queue. ``hints`` says why there may be fewer.

    Raises InvalidArgumentError.
    """
    _check_count("count", count)
    return Wanted(
        f"share group {group_id} has not got {count} dead letters",
        lambda found: len(found) >= count,
        lambda found: f"it has {len(found)}{hints()}",
    )


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(f"{name}={value!r}: expected a number from 0 on")


def _texts(states: tuple[str, ...], *, state: str | None, **numbers: Any) -> str:
    """Return the wanted state of a group as a text. Raises InvalidArgumentError, also if nothing is wanted."""
    texts = [] if state is None else [f"state {check_word('state', state, states)}"]
    for name, value in numbers.items():
        if value is None:
            continue
        if name == "committed":
            texts.append(f"committed {value}")
            continue
        _check_count(name, value)
        texts.append(f"a lag of at most {value}" if name == "lag" else f"{value} {name}")
    if not texts:
        *others, last = "state", *numbers
        raise InvalidArgumentError(f"nothing to wait for: give {', '.join(others)} or {last}")
    return " and ".join(texts)


def wanted_transaction(transactional_id: str, state: str) -> Wanted[TransactionInfo]:
    """Return a transaction in that state. Raises InvalidArgumentError."""
    check_word("state", state, TRANSACTION_STATES)
    return Wanted(
        f"the transaction of {transactional_id} was not {state}",
        lambda found: found.state == state,
        lambda found: (
            f"it is {found.state}, of producer {found.producer_id} with epoch {found.producer_epoch}"
        ),
    )
