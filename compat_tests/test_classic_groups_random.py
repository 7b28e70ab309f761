"""A random walk of two members of a classic group, the same on both targets; every response is compared.

Two, because whom Kafka makes the leader among more is a matter of a hash map. A failure prints its seed.
"""

import random
import select
from typing import Any

import pytest

from compat_tests.classic_members import Member, compare, observe_group
from compat_tests.differential import Pair, Session
from compat_tests.seeds import seeds

pytestmark = pytest.mark.slow

STEPS = 40
SILENCES_S = (0.3, 1.5, 6)
"""What Kafka does not answer in this time waits for another member: nothing else takes so long. Beside other load it
may all the same, and then the walk is gone again with more patience: a difference that is one is seen every time."""
SHORT_SILENCE_S, PATIENCE_S = 0.02, 10
"""The second target is given little time to answer what the first did not, and much for what it did."""
WALKS = 4


class Walker:
    """A member that has at most one request on its way, and notes its response when it comes."""

    def __init__(self, session: Session, group: str, name: str, rng: random.Random) -> None:
        self.rng = rng
        instance = name if rng.random() < 0.4 else None
        version = rng.choice((5, 7, 9) if instance else (3, 4, 5, 7, 9))
        self.member = Member(session, group, name, version=version, instance=instance)
        self.waits_for = ""
        self.leads: list[str] = []

    def settle(self, timeout_s: float) -> bool:
        """Note the response that was waited for, if it is there."""
        if not self.waits_for or not select.select([self.member.connection.socket], [], [], timeout_s)[0]:
            return not self.waits_for
        response = self.member.receive(self.waits_for)
        if "members" in response and "leader" in response:
            self.leads = []
            if response["leader"] == response["member_id"]:
                self.leads = [row["member_id"] for row in response["members"]]
            if response["error_code"] in (25, 81, 82):
                self.member.member_id = ""
        self.waits_for = ""
        return True

    def step(self, at: int) -> None:
        self.rng.choice(
            [self.join, self.join, self.sync, self.sync, self.heartbeat, self.leave, self.restart]
        )(at)

    def oblige(self, at: int) -> None:
        """Do what the other waits for."""
        (self.sync if self.member.heartbeat(f"step {at}")["error_code"] == 0 else self.join)(at)

    def join(self, at: int) -> None:
        if self.rng.random() < 0.3:
            self.member.protocols = {"range": f"{self.member.name} {self.rng.randrange(3)}".encode()}
        self.member.send_join()
        self.waits_for = f"step {at}"

    def sync(self, at: int) -> None:
        changes: dict[str, Any] = {}
        if self.rng.random() < 0.1:
            changes["generation_id"] = self.rng.randrange(5)
        self.member.send_sync(dict.fromkeys(self.leads, b"to %d" % at), **changes)
        self.waits_for = f"step {at}"

    def heartbeat(self, at: int) -> None:
        self.member.heartbeat(f"step {at}")

    def leave(self, at: int) -> None:
        if self.rng.random() < 0.3:
            self.member.leave(f"step {at}")

    def restart(self, at: int) -> None:
        """Of a static member; the instance of a dynamic one would have to time out."""
        if self.member.instance is not None:
            self.member.member_id = ""
            self.join(at)


@pytest.mark.parametrize("seed", seeds(WALKS))
def test_two_members_at_random(pair: Pair, name: str, seed: int) -> None:
    for attempt, silence_s in enumerate(SILENCES_S, 1):
        try:
            walk(pair, f"{name}-{attempt}", seed, silence_s)
            return
        except AssertionError:
            if attempt == len(SILENCES_S):
                raise


def walk(pair: Pair, name: str, seed: int, silence_s: float) -> None:
    answered: dict[tuple[int, str], bool] = {}
    """Of the first target: whether by the end of that step that member had its response."""

    def scenario(session: Session) -> None:
        is_first = not answered
        rng = random.Random(seed)
        walkers = [Walker(session, name, one, rng) for one in ("one", "two")]
        for at in range(STEPS):
            walker, other = rng.sample(walkers, 2)
            if walker.waits_for:
                walker, other = other, walker
            if walker.waits_for:
                observe_group(session, name, f"step {at}")
            elif other.waits_for and rng.random() < 0.6:
                walker.oblige(at)
            else:
                walker.step(at)
            for one in walkers:
                key = at, one.member.name
                if is_first:
                    answered[key] = one.settle(silence_s)
                else:
                    one.settle(PATIENCE_S if answered[key] else SHORT_SILENCE_S)
        observe_group(session, name, "in the end")
        session.observe("waiting", [walker.waits_for for walker in walkers])

    compare(pair, name, scenario)
