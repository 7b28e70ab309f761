"""A random walk of two members of a classic group, the same on both targets; every response is compared.

There are only two members because Kafka chooses among more leaders by the order of a hash map. A failure prints its
seed.
"""

import random
import select
from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_members import Member, compare, observe_group
from tests.common.seeds import seeds

pytestmark = pytest.mark.slow

STEPS = 40
NO_RESPONSE_S = (0.3, 1.5, 6)
"""If Kafka has not responded after this time, its response waits for another member. Under other load Kafka may be
slower, so a walk that fails is repeated with the next time; a real difference appears every time."""
UNEXPECTED_RESPONSE_S, EXPECTED_RESPONSE_S = 0.02, 10
"""How long to wait for the second target's response: where the first target had none in time, and where it had one."""
WALKS = 4


class Walker:
    """A member with at most one request in flight."""

    def __init__(self, session: Session, group: str, name: str, rng: random.Random) -> None:
        self.rng = rng
        instance = name if rng.random() < 0.4 else None
        version = rng.choice((5, 7, 9) if instance else (3, 4, 5, 7, 9))
        self.member = Member(session, group, name, version=version, instance=instance)
        self.in_flight = ""
        """The note of the request that has no response yet."""
        self.followers: list[str] = []
        """While this member leads its group: the ids of all members."""

    def receive(self, timeout_s: float) -> bool:
        """Observe the response in flight if it comes in time; whether none is in flight any more."""
        if not self.in_flight or not select.select([self.member.connection.socket], [], [], timeout_s)[0]:
            return not self.in_flight
        response = self.member.receive(self.in_flight)
        if "members" in response and "leader" in response:
            self.followers = []
            if response["leader"] == response["member_id"]:
                self.followers = [row["member_id"] for row in response["members"]]
            if response["error_code"] in (25, 81, 82):
                self.member.member_id = ""
        self.in_flight = ""
        return True

    def step(self, at: int) -> None:
        self.rng.choice(
            [self.join, self.join, self.sync, self.sync, self.heartbeat, self.leave, self.restart]
        )(at)

    def unblock_other(self, at: int) -> None:
        """Send the request that the other member's response waits for."""
        (self.sync if self.member.heartbeat(f"step {at}")["error_code"] == 0 else self.join)(at)

    def join(self, at: int) -> None:
        if self.rng.random() < 0.3:
            self.member.protocols = {"range": f"{self.member.name} {self.rng.randrange(3)}".encode()}
        self.member.send_join()
        self.in_flight = f"step {at}"

    def sync(self, at: int) -> None:
        changes: dict[str, Any] = {}
        if self.rng.random() < 0.1:
            changes["generation_id"] = self.rng.randrange(5)
        self.member.send_sync(dict.fromkeys(self.followers, b"to %d" % at), **changes)
        self.in_flight = f"step {at}"

    def heartbeat(self, at: int) -> None:
        self.member.heartbeat(f"step {at}")

    def leave(self, at: int) -> None:
        if self.rng.random() < 0.3:
            self.member.leave(f"step {at}")

    def restart(self, at: int) -> None:
        """Join as a restarted static member; a dynamic one's old id would first have to time out."""
        if self.member.instance is not None:
            self.member.member_id = ""
            self.join(at)


@pytest.mark.parametrize("seed", seeds(WALKS))
def test_two_members_at_random(pair: Pair, name: str, seed: int) -> None:
    for attempt, timeout_s in enumerate(NO_RESPONSE_S, 1):
        try:
            walk(pair, f"{name}-{attempt}", seed, timeout_s)
            return
        except AssertionError:
            if attempt == len(NO_RESPONSE_S):
                raise


def walk(pair: Pair, name: str, seed: int, timeout_s: float) -> None:
    responded: dict[tuple[int, str], bool] = {}
    """By step and member: whether the first target had responded by the end of that step."""

    def scenario(session: Session) -> None:
        is_first = not responded
        rng = random.Random(seed)
        walkers = [Walker(session, name, one, rng) for one in ("one", "two")]
        for at in range(STEPS):
            walker, other = rng.sample(walkers, 2)
            if walker.in_flight:
                walker, other = other, walker
            if walker.in_flight:
                observe_group(session, name, f"step {at}")
            elif other.in_flight and rng.random() < 0.6:
                walker.unblock_other(at)
            else:
                walker.step(at)
            for one in walkers:
                key = at, one.member.name
                if is_first:
                    responded[key] = one.receive(timeout_s)
                else:
                    one.receive(EXPECTED_RESPONSE_S if responded[key] else UNEXPECTED_RESPONSE_S)
        observe_group(session, name, "in the end")
        session.observe("in flight", [walker.in_flight for walker in walkers])

    compare(pair, name, scenario)
