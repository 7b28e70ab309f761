"""ShareFetch and ShareAcknowledge, right and wrong, on both targets: the responses are the same, field by field."""

from __future__ import annotations

import random

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.share.readers import Reader, Said, share_topic
from tests.common.batches import batch
from tests.common.definitions import Fields

pytestmark = [pytest.mark.slow, pytest.mark.also_on("proxy")]

GAP, ACCEPT, RELEASE, REJECT, RENEW = ([kind] for kind in range(5))

WRONG: dict[str, tuple[Said, ...]] = {
    "out of order": ((4, 5, ACCEPT), (0, 1, ACCEPT)),
    "overlapping": ((0, 3, ACCEPT), (2, 5, ACCEPT)),
    "the last offset again": ((0, 3, ACCEPT), (3, 5, ACCEPT)),
    "the last before the first": ((3, 2, ACCEPT),),
    "no type": ((0, 1, []),),
    "too few types": ((0, 3, [1, 1]),),
    "too many types": ((0, 1, [1, 1, 1]),),
    "an unknown type": ((0, 1, [5]),),
    "a negative type": ((0, 1, [-1]),),
    "a renewal that is not announced": ((0, 1, RENEW),),
    "not acquired yet": ((50, 51, ACCEPT),),
    "reaches beyond what is acquired": ((8, 12, ACCEPT),),
    "negative offsets": ((-3, -1, ACCEPT),),
    "another member's": ((10, 11, ACCEPT),),
    "another member's, with its own": ((8, 11, ACCEPT),),
    "accepted already": ((20, 20, ACCEPT),),
    "some accepted already": ((19, 22, ACCEPT),),
    "released": ((25, 25, ACCEPT),),
    "one of two": ((0, 1, ACCEPT), (20, 20, ACCEPT)),
    "each with a type, some accepted already": ((19, 22, [1, 2, 3, 0]),),
    "none": (),
}


@pytest.mark.parametrize("on_fetch", [False, True], ids=["ShareAcknowledge", "ShareFetch"])
def test_wrong_acknowledgements(pair: Pair, name: str, on_fetch: bool) -> None:
    """None of them changes anything: what is acquired, can still be acknowledged."""

    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        topic_id = share_topic(session, name, 10, 10, 10)
        one, other = (Reader(session, topic_id, member, name) for member in ("one", "other"))
        session.observe("begin", one.begin(most=1))
        session.observe("begin", other.begin(most=1))
        session.observe("fetch", one.fetch(most=1))
        one.say((20, 22, ACCEPT))
        one.say((25, 25, RELEASE))
        for what, said in WRONG.items():
            if on_fetch:
                one.fetch(*said, note=what, most=0)
            else:
                one.say(*said, note=what)
        one.say((0, 9, ACCEPT), (23, 24, REJECT))
        other.say((10, 19, ACCEPT))
        one.fetch(note="what was released")

    pair.compare(scenario)


def test_sessions_out_of_step(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, 4)
        one = Reader(session, topic_id, "one", name)
        for epoch in (1, -1, -2, 7):
            one.epoch = epoch
            one.send(one.body(), note=f"no session, epoch {epoch}")
            one.say((0, 0, ACCEPT), epoch=epoch)
        one.epoch = 0
        one.say((0, 0, ACCEPT), note="a session cannot begin with it")
        one.send(one.body((0, 0, ACCEPT)), note="acknowledges before the session begins")
        one.begin(most=1)
        for epoch in (one.epoch + 1, one.epoch - 1, -2):
            body = {**one.body((0, 0, ACCEPT)), "share_session_epoch": epoch}
            one.send(body, note="out of step")
            one.say((0, 0, ACCEPT), epoch=epoch, note="out of step")
        one.say((0, 0, ACCEPT))
        body = one.body()
        for member in ("", "m" * 37, None):
            one.send({**body, "member_id": member}, note=f"member id {member!r}")
        one.send({**body, "group_id": None}, note="no group")
        one.send({**body, "group_id": name + "x"}, note="another group")
        one.send({**body, "is_renew_ack": True}, note="a renewal that asks for records")
        one.leave()
        session.observe("a new session", one.begin())
        one.leave()

    pair.compare(scenario)


@pytest.mark.parametrize("which", ["too large", "negative"])
def test_unknown_partitions(pair: Pair, name: str, which: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, 4)
        one = Reader(session, topic_id, "one", name)
        one.begin(most=1)
        index = {"too large": 1, "negative": -1}[which]
        row: Fields = {"partition_index": index, "acknowledgement_batches": []}
        topics = [{"topic_id": topic_id, "partitions": [row]}]
        one.send({**one.body(), "topics": topics}, note="another partition")
        one.fetch(note="errors are told again")
        row["acknowledgement_batches"] = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": ACCEPT}]
        one.send({**one.body(), "topics": topics}, note="acknowledged")
        forgotten = [{"topic_id": topic_id, "partitions": [index]}]
        one.send({**one.body(), "forgotten_topics_data": forgotten}, note="forgotten")
        one.fetch(note="no errors any more")
        one.say((0, 3, ACCEPT))

    pair.compare(scenario)


@pytest.mark.parametrize("mode", [0, 1], ids=["batch_optimized", "record_limit"])
def test_which_records_are_acquired(pair: Pair, name: str, mode: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, 1, 5, 5, 1, 1, 1, 10, 3, 7, 20)
        one, other = (Reader(session, topic_id, member, name) for member in ("one", "other"))
        session.observe("begin", one.begin(most=3, mode=mode))
        session.observe("begin", other.begin(most=2, batch_size=2, mode=mode))
        for most, batch_size in ((1, 1), (4, 2), (10, 4), (7, 500), (500, 3), (500, 500)):
            one.fetch(most=most, batch_size=batch_size, mode=mode)
        one.say((12, 12, RELEASE), (14, 14, RELEASE), (20, 30, RELEASE))
        other.fetch(most=1, mode=mode)
        other.fetch(most=5, mode=mode)
        other.fetch(mode=mode)
        other.fetch(mode=mode)

    pair.compare(scenario)


def test_deliveries_up_to_the_limit(pair: Pair, name: str) -> None:
    """Records that fail again and again are delivered in ever smaller batches, and archived in the end."""

    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, 20, 10)
        one = Reader(session, topic_id, "one", name)
        session.observe("begin", one.begin(most=1))
        one.say((0, 19, RELEASE))
        while acquired := one.fetch(most=20):
            one.say(*((first, last, RELEASE) for first, last, _ in acquired))

    pair.compare(scenario)


def test_no_more_than_the_limit_in_flight(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = share_topic(session, name, *[10] * 15, share_partition_max_record_locks="100")
        one = Reader(session, topic_id, "one", name)
        session.observe("begin", one.begin(most=45))
        for _ in range(4):
            one.fetch(most=45)
        one.say((3, 5, RELEASE), (0, 2, ACCEPT))
        one.fetch(most=45)
        one.fetch(most=45)
        one.say((3, 60, ACCEPT))
        one.fetch(most=45)
        one.fetch(most=45)

    pair.compare(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_random_requests(pair: Pair, name: str, seed: int) -> None:
    """Members fetch, acknowledge and give back, right and wrong, at random. (None leaves: in Kafka it may fetch again
    before the end of its session is stored.)
    """

    def scenario(session: Session) -> None:
        rng = random.Random(seed)
        session.exact_error_messages = True
        sizes = [rng.choice((1, 1, 2, 5, 17)) for _ in range(60)]
        topic_id = share_topic(session, name, *sizes, share_delivery_count_limit=str(rng.choice((2, 3, 5))))
        readers = [Reader(session, topic_id, member, name) for member in ("a", "b", "c")]
        for reader in readers:
            session.observe("begin", reader.begin(most=1))
        end = sum(sizes)
        for _ in range(120):
            reader = rng.choice(readers)
            step = rng.random()
            if step < 0.35:
                most, batch_size = rng.choice((0, 1, 3, 10, 500)), rng.choice((1, 5, 500))
                reader.fetch(mode=rng.choice((0, 0, 1)), most=most, batch_size=batch_size)
            elif step < 0.9:
                most = rng.choice((0, 0, 3, 500))
                # Kafka may store a release before the same request's fetch, or after it.
                said = random_acknowledgements(rng, reader, end, may_release=not most)
                if said and rng.random() < 0.6:
                    reader.fetch(*said, most=most)
                elif said:
                    reader.say(*said)
            else:
                session.produce(name, batch(3))
                end += 3

    pair.compare(scenario)


def random_acknowledgements(rng: random.Random, reader: Reader, end: int, *, may_release: bool) -> list[Said]:
    """Mostly of what the reader has acquired, or had."""
    said: list[Said] = []
    at = 0
    held = sorted(reader.held)
    for _ in range(rng.randrange(1, 4)):
        mine = [offset for offset in held if offset >= at]
        if not mine:
            break
        first = rng.choice(mine[: 1 + len(mine) // 2]) if rng.random() < 0.9 else rng.randrange(end)
        last = first
        while last + 1 in reader.held and rng.random() < 0.8:
            last += 1
        if first < at and rng.random() < 0.9:
            continue
        count = 1 if rng.random() < 0.6 else last - first + 1
        types = rng.choices((0, 1, 2, 3), (1, 6, 4 * may_release, 1), k=count)
        said.append((first, last, types))
        if rng.random() < 0.95:
            reader.held.difference_update(range(first, last + 1))
        at = last + 1
    return said
