"""Members of a consumer group that prefer different assignors: which one is the group's where two have as many."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.group_requests.consumer_members import Member, Topics


@pytest.mark.parametrize("preferred", ["uniform uniform range range", "range range uniform uniform"])
def test_a_tie(pair: Pair, name: str, preferred: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        topics = Topics(session, name)
        topics.make(name, 4)
        for number, assignor in enumerate(preferred.split()):
            Member(topics, name, f"m{number}", [name], assignor=assignor).heartbeat_unobserved(
                **Member(topics, name, f"m{number}", [name], assignor=assignor).join_fields()
            )
        response = session.call_unobserved("ConsumerGroupDescribe", 1, {"group_ids": [name]})
        session.observe("the group's assignor", [row["assignor_name"] for row in response["groups"]])

    pair.compare(scenario)
