"""The classic mistakes, each with its mend. docs/how-to/mistakes.md explains each at length, under the same name: it is
part of the package, as mistakes.md beside this module.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final, NamedTuple

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.names import meant


class Mistake(NamedTuple):
    """A mistake."""

    title: str
    mend: str


MISTAKES: Final = {
    "offsets-before-work": Mistake(
        "Offsets are committed before the work is done",
        "commit the offset of a record after its result was acknowledged",
    ),
    "auto-commit-in-background": Mistake(
        "Offsets are committed while the work goes on, by a timer or by a commit that takes the position",
        "commit the offset of a record when its result is acknowledged (flush the producer first): by no timer "
        "(enable.auto.commit=false), and by no commit() without arguments while work is open",
    ),
    "commit-in-revoke": Mistake(
        "The offsets of unfinished work are committed when partitions are revoked",
        "finish the work, or commit only the offsets of what is finished, before partitions go",
    ),
    "offsets-outside-transaction": Mistake(
        "The offsets are committed outside of the transaction",
        "send the offsets to the transaction (send_offsets_to_transaction) and commit them with it",
    ),
    "offset-of-the-record": Mistake(
        "The offset of the record itself is committed, not the next one",
        "commit the offset of the last record that is done, plus one",
    ),
    "new-id-without-group": Mistake(
        "Who takes over has another transactional id, and the offsets come without the group's metadata",
        "pass the consumer's group metadata with the offsets, or let one transactional id go with the partitions",
    ),
    "one-id-for-two": Mistake(
        "Two instances have the same transactional id",
        "give each instance a transactional id of its own",
    ),
    "unread-errors": Mistake(
        "Nobody reads the errors of sent records",
        "look at the result of each record before its offset is committed, and stop at an error: an acknowledgement or "
        "a commit after it goes on as if nothing had happened",
    ),
    "no-flush-at-exit": Mistake(
        "Asked to end, the program commits what is not done, or not sent yet",
        "flush the producer before the offsets are committed, and commit in no handler of SIGTERM: it runs in the "
        "middle of the work",
    ),
    "offset-before-id": Mistake(
        "The program asks for its offsets before it has its transactional id",
        "call init_transactions first, and then assign, subscribe or poll: it ends what another instance has open",
    ),
    "offset-beyond-the-end": Mistake(
        "An offset beyond the end of the partition is committed",
        "commit the offset of the last record that is done, plus one, as a number: a text and a 1 make another one",
    ),
    "acks-zero": Mistake(
        "The producer asks for no acknowledgement",
        "set acks=all",
    ),
    "acks-one": Mistake(
        "The leader alone acknowledges a record",
        "set acks=all",
    ),
    "resends-without-idempotence": Mistake(
        "Records are sent again without idempotence",
        "set enable.idempotence=true",
    ),
    "abort-without-rewind": Mistake(
        "After an abort the program goes on with the next record",
        "after an abort, seek to the committed offsets before the next poll",
    ),
    "refused-in-flight": Mistake(
        "The client takes a later request's acknowledgement for that of one which was refused",
        "let one request be in flight (max.in.flight.requests.per.connection=1): it is a fault of librdkafka",
    ),
    "sent-to-another-partition": Mistake(
        "The client sends a record again to another partition, and gives its sequence number to the next one",
        "give each record a key, or a partition: it is a fault of KafkaJS",
    ),
    "read-uncommitted": Mistake(
        "A reader behind a transactional writer reads uncommitted records",
        "set isolation.level=read_committed",
    ),
    "outside-transaction": Mistake(
        "A part of the results is written outside of the transaction",
        "write every result, dead letters too, with the transactional producer",
    ),
    "two-writes": Mistake(
        "Result and offset are two writes, and nothing holds them together",
        "write both in one transaction (a share group cannot), or make the result idempotent: the same key gives the "
        "same row",
    ),
    "zombie": Mistake(
        "An instance that was replaced goes on",
        "let it be fenced: one transactional id for each instance, or the group's metadata with the offsets, which are "
        "read at isolation.level=read_committed; in a database, refuse it where the offset that is stored in the same "
        "transaction has moved",
    ),
}
"""By name: the anchor in docs/how-to/mistakes.md."""


def explained(mistake: str) -> str:
    """Return the page's section about a mistake. Raises InvalidArgumentError for one that it does not have."""
    if mistake not in MISTAKES:
        raise InvalidArgumentError(
            f"there is no mistake {mistake!r}{meant(mistake, MISTAKES)} (there are {', '.join(MISTAKES)})"
        )
    sections = files(__package__).joinpath("mistakes.md").read_text(encoding="utf-8").split("\n## ")
    found = next(one for one in sections if anchor(one.partition("\n")[0]) == mistake)
    return f"## {found.rstrip()}\n"


def anchor(heading: str) -> str:
    """Return what a link to a heading of the page ends in."""
    return heading.lower().replace(" ", "-")
