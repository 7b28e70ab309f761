"""Random walks of a group with members of both protocols, the same on both targets: the response to every step is
compared, and the group's description after it.

A failing walk prints its seed; ONCELOG_SEED (one, or several with commas) runs that alone.
"""

import random
from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_consumers import ClassicConsumer, assign_all, observe_classic_group
from compat_tests.group_requests.consumer_members import Member, Topics, compare, observe_consumer_group
from tests.common.seeds import seeds

pytestmark = pytest.mark.slow

STEPS = 120
WALKS, NEW_WALKS = 5, 5
INSTANCE = "i1"


class Walk:
    """Three members of the consumer protocol, one of them static, and a static classic member, perhaps with the same
    instance id. All use the range assignor, because its assignment does not depend on the order of a hash table.
    """

    def __init__(self, session: Session, topics: Topics, group: str, seed: int) -> None:
        self.session = session
        self.topics = topics
        self.group = group
        self.rng = random.Random(seed)
        self.names = [f"{group}-a", f"{group}-b"]
        topics.make(self.names[0], 3)
        topics.make(self.names[1], 2)
        self.members = [self._member(f"m{at}", INSTANCE if at == 2 else None) for at in range(3)]
        other = INSTANCE if self.rng.random() < 0.5 else "i2"
        self.classic = ClassicConsumer(topics, group, "classic", [self.names[0]], other)
        self.members_created = 3
        self.at = 0

    def _member(self, member_id: str, instance: str | None) -> Member:
        names = self.rng.sample(self.names, self.rng.randint(1, 2))
        return Member(self.topics, self.group, member_id, names, instance=instance, assignor="range")

    def run(self) -> None:
        steps = [
            *(self.join, self.leave, self.subscribe, self.wrong_epoch, self.claim, self.return_as_another),
            *(self.acknowledge,) * 6,
            *(self.heartbeat,) * 2,
            *(self.classic_join,) * 2,
            *(self.classic_beat,) * 3,
            self.classic_leave,
        ]
        for self.at in range(STEPS):
            self.rng.choice(steps)()
            note = f"after step {self.at}"
            observe_consumer_group(self.topics, self.group, note)
            observe_classic_group(self.session, self.group, note)

    def _any_member(self) -> Member:
        return self.rng.choice(self.members)

    def _note(self, member: Member, what: str) -> str:
        return f"{self.at}: {member.member_id} {what}"

    def join(self) -> None:
        member = self._any_member()
        member.join(self._note(member, "joins"))

    def return_as_another(self) -> None:
        """The static member joins with another member id, perhaps while its instance id is in use."""
        member = self.members[2]
        self.members_created += 1
        member.member_id = f"m{self.members_created}"
        member.join(self._note(member, "returns"))

    def leave(self) -> None:
        member = self._any_member()
        epoch = -2 if member.instance and self.rng.random() < 0.5 else -1
        member.leave(self._note(member, "leaves"), epoch)

    def subscribe(self) -> None:
        member = self._any_member()
        if member.epoch > 0:
            names = self.rng.sample([*self.names, "nowhere"], self.rng.randint(0, 2))
            member.acknowledge(self._note(member, f"reads {len(names)}"), subscribed_topic_names=names)

    def wrong_epoch(self) -> None:
        member = self._any_member()
        epoch = max(1, member.epoch + self.rng.choice([-2, -1, 1]))
        rows = self.topics.rows(member.owned)
        member.heartbeat(self._note(member, "with another epoch"), member_epoch=epoch, topic_partitions=rows)

    def acknowledge(self) -> None:
        member = self._any_member()
        if member.epoch > 0:
            member.acknowledge(self._note(member, "acknowledges"))
        else:
            member.join(self._note(member, "joins"))

    def claim(self) -> None:
        """A member reports all partitions as its own."""
        member = self._any_member()
        if member.epoch > 0:
            rows = self.topics.rows({self.names[0]: [0, 1, 2], self.names[1]: [0, 1]})
            member.take_assignment(
                member.heartbeat(self._note(member, "claims everything"), topic_partitions=rows)
            )

    def heartbeat(self) -> None:
        member = self._any_member()
        if member.epoch > 0:
            member.take_assignment(member.heartbeat(self._note(member, "lives")))

    def classic_join(self) -> None:
        response: Any = self.classic.join(f"{self.at}: joins")
        if response["error_code"] in (25, 82):
            self.classic.member_id, self.classic.generation, self.classic.owned = "", -1, {}
        elif response["error_code"] == 0:
            rows = {self.classic.member_id: assign_all(self.names[0], 3)} if response["members"] else {}
            self.classic.sync(f"{self.at}: syncs", rows)

    def classic_beat(self) -> None:
        if self.classic.member_id and self.classic.heartbeat(f"{self.at}: lives")["error_code"] == 27:
            self.classic_join()

    def classic_leave(self) -> None:
        self.classic.leave(f"{self.at}: leaves")


@pytest.mark.parametrize("seed", seeds(WALKS, NEW_WALKS))
def test_random_walk(pair: Pair, name: str, seed: int) -> None:
    print(f"seed {seed}")
    compare(pair, name, lambda session, topics: Walk(session, topics, name, seed).run())
