"""`StandardAuthorizer` against a re-statement of its rules, and against Kafka's own, on random ACLs and questions."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterator

import pytest

from oncelog.broker.metadata.acl_changes import ANY, MATCH, AclFilter
from oncelog.broker.metadata.acls import ALLOW, DENY, LITERAL, PREFIXED, AclBinding
from oncelog.broker.requests.authorization import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    IDEMPOTENT_WRITE,
    READ,
    TRANSACTIONAL_ID_RESOURCE,
    TWO_PHASE_COMMIT,
    WRITE,
)
from oncelog.broker.security.acls import StandardAuthorizer
from tests.harness.kafka_oracle import Oracle
from tests.harness.steps import count_bytecodes

TOPIC, GROUP = 2, 3
NAMES = ("a", "ab", "abc", "abcd", "b", "ba", "*", "*a", "!", "ä", "aä", "hardcode", "hard", "kafka-cluster")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:a:b", "User:")
ASKING = tuple(principal for principal in PRINCIPALS if principal != "User:*")  # with it Kafka's own fails
CLIENTS = ("127.0.0.1", "10.0.0.9", "10.1.0.9", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:9")
NETWORKS = {
    "10.0.0.0/8": ("10.0.0.9", "10.1.0.9"),
    "10.0.7.7/16": ("10.0.0.9",),
    "10.0.0.9/32": ("10.0.0.9",),
    "0.0.0.0/0": ("127.0.0.1", "10.0.0.9", "10.1.0.9"),
    "::/0": ("0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:9"),
    "2001:db8::/32": ("2001:db8:0:0:0:0:0:9",),
    "2001:DB8:0::ff/64": ("2001:db8:0:0:0:0:0:9",),
    "2001:db8::1/128": (),
    "10.0.0.0/33": (),  # no network: stored before these were checked
    "x/8": (),
}
"""Hosts of ACLs, and the clients that they have."""
HOSTS = ("*", *CLIENTS, *NETWORKS)
OPERATIONS = tuple(range(ALL, TWO_PHASE_COMMIT + 1))
ROUNDS, CHANGES, QUESTIONS = 150, 40, 60


def random_acl(rng: random.Random) -> AclBinding:
    return AclBinding(
        rng.choice((TOPIC, TOPIC, GROUP)),
        rng.choice(NAMES),
        rng.choice((LITERAL, PREFIXED)),
        rng.choice(PRINCIPALS[:-1]),
        rng.choice(HOSTS),
        rng.choice((ALL, READ, WRITE, DESCRIBE, rng.choice(OPERATIONS))),
        rng.choice((ALLOW, ALLOW, DENY)),
    )


class Restated:
    """The rules in the fewest words: every ACL is looked at."""

    def __init__(self, super_users: frozenset[str], allow: bool) -> None:
        self.super_users, self.allow = super_users, allow
        self.acls: dict[bytes, AclBinding] = {}

    def applies(self, acl: AclBinding, name: str) -> bool:
        if acl.pattern_type == PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == name or (acl.resource_name == "*" and not name.startswith("*"))

    def authorize(self, principal: str, host: str, operation: int, resource: tuple[int, str]) -> bool:
        if principal in self.super_users:
            return True
        there = [
            acl
            for acl in self.acls.values()
            if acl.resource_type == resource[0] and self.applies(acl, resource[1])
        ]
        implied = {DESCRIBE: {READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {ALTER_CONFIGS}}
        hosts = ("*", host, *(network for network, clients in NETWORKS.items() if host in clients))
        mine = [acl for acl in there if acl.principal in (principal, "User:*") and acl.host in hosts]
        if any(acl.permission_type == DENY and acl.operation in (ALL, operation) for acl in mine):
            return False
        enough = {ALL, operation} | implied.get(operation, set())
        if any(acl.permission_type == ALLOW and acl.operation in enough for acl in mine):
            return True
        return not there and self.allow


Step = tuple[str, tuple[object, ...]]


def scenario(seed: int) -> Iterator[Step]:
    """What happens in a round: a new authorizer, ACLs that come and go, and questions in between."""
    rng = random.Random(seed)
    super_users = rng.choice(("", "User:bob", " User:root ; User:bob;;"))
    yield "new", (super_users, rng.choice(("true", "TRUE ", "false", "")))
    there: dict[int, AclBinding] = {}
    for number in range(CHANGES):
        acl = random_acl(rng)
        if there and rng.random() < 0.3:
            gone = rng.choice(list(there))
            del there[gone]
            yield "remove", (gone,)
        elif acl not in there.values():
            there[number] = acl
            yield "add", (number, acl)
        for _ in range(QUESTIONS // 20):
            principal, host = rng.choice(ASKING), rng.choice(CLIENTS)
            operation = rng.choice(OPERATIONS[1:])
            kind = rng.choice((TOPIC, GROUP, TRANSACTIONAL_ID_RESOURCE))
            yield "ask", (principal, host, operation, (kind, rng.choice((*NAMES, "", "zzz"))))
            yield "any", (principal, host, rng.choice((READ, WRITE, DESCRIBE)), kind)
        yield (
            "filter",
            (
                AclFilter(
                    rng.choice((ANY, TOPIC, GROUP)),
                    rng.choice((None, *NAMES)),
                    rng.choice((ANY, MATCH, LITERAL, PREFIXED)),
                    rng.choice((None, *PRINCIPALS)),
                    rng.choice((None, None, *HOSTS)),
                    rng.choice((ANY, ANY, READ, ALL)),
                    rng.choice((ANY, ALLOW, DENY)),
                ),
            ),
        )


def users_of(text: str) -> frozenset[str]:
    return frozenset(user.strip() for user in text.split(";") if user.strip())


def test_against_the_rules_restated() -> None:
    answers = set()
    for seed in range(ROUNDS):
        ours, restated = StandardAuthorizer(), Restated(frozenset(), False)
        for word, given in scenario(seed):
            if word == "new":
                users, allow = users_of(str(given[0])), str(given[1]).strip().lower() == "true"
                ours = StandardAuthorizer(users, allow_everyone_if_no_acl=allow)
                restated = Restated(users, allow)
            elif word == "add":
                number, acl = given
                assert isinstance(acl, AclBinding)
                ours.add(str(number).encode(), acl)
                restated.acls[str(number).encode()] = acl
            elif word == "remove":
                ours.remove(str(given[0]).encode())
                del restated.acls[str(given[0]).encode()]
            elif word == "ask":
                expected = restated.authorize(*given)  # type: ignore[arg-type]
                for _ in range(2):  # the second answer is remembered
                    assert ours.authorize(*given) == expected, (seed, given, restated.acls)  # type: ignore[arg-type]
                answers.add(expected)
    assert answers == {True, False}


@pytest.mark.slow
def test_against_kafkas_own(oracle: Oracle) -> None:
    lines: list[str] = []
    ours: list[str] = []
    for seed in range(ROUNDS):
        authorizer = StandardAuthorizer()
        there: dict[object, AclBinding] = {}
        for word, given in scenario(seed):
            if word == "new":
                allow = str(given[1]).strip().lower() == "true"
                authorizer = StandardAuthorizer(users_of(str(given[0])), allow_everyone_if_no_acl=allow)
                fields: tuple[object, ...] = given
            elif word == "add":
                number, acl = given
                assert isinstance(acl, AclBinding)
                there[number] = acl
                authorizer.add(str(number).encode(), acl)
                fields = (number, *acl)
            elif word == "remove":
                del there[given[0]]
                authorizer.remove(str(given[0]).encode())
                fields = given
            elif word == "filter":
                (wanted,) = given
                assert isinstance(wanted, AclFilter)
                fields = tuple("-" if field is None else field for field in wanted)
                ours.append(f"{sum(map(wanted.matches, there.values()))} ")
            else:
                principal, host, operation, resource = given
                kind, name = str(principal).split(":", 1)
                named = resource if isinstance(resource, tuple) else (resource,)
                fields = (kind, name, host, operation, *named)
                decide = authorizer.authorize if word == "ask" else authorizer.authorize_by_resource_type
                ours.append(str(int(decide(*given))))  # type: ignore[arg-type]
            lines.append("\t".join(map(str, (word, *fields))))
    told = oracle(pathlib.Path(__file__).with_name("AuthorizerOracle.java"), "\n".join(lines).encode())
    questions = [line for line in lines if line.startswith(("ask", "any", "filter"))]
    theirs = [
        token + " " if line.startswith("filter") else token
        for line, token in zip(questions, _tokens(told.decode(), questions), strict=True)
    ]
    wrong = [
        (line, kafka, mine)
        for line, kafka, mine in zip(questions, theirs, ours, strict=True)
        if kafka != mine
    ]
    assert not wrong, wrong[:5]


def _tokens(told: str, questions: list[str]) -> Iterator[str]:
    at = 0
    for line in questions:
        end = told.index(" ", at) if line.startswith("filter") else at + 1
        yield told[at:end]
        at = end + line.startswith("filter")
    assert at == len(told)


ALICE, HERE = "User:alice", "127.0.0.1"


def acl(
    name: str = "t", operation: int = READ, permission: int = ALLOW, pattern: int = LITERAL, kind: int = TOPIC
) -> AclBinding:
    return AclBinding(kind, name, pattern, ALICE, "*", operation, permission)


@pytest.mark.parametrize(
    ("granted", "implied"),
    [
        (READ, {READ, DESCRIBE}),
        (WRITE, {WRITE, DESCRIBE}),
        (DELETE, {DELETE, DESCRIBE}),
        (ALTER, {ALTER, DESCRIBE}),
        (DESCRIBE, {DESCRIBE}),
        (CREATE, {CREATE}),
        (CLUSTER_ACTION, {CLUSTER_ACTION}),
        (IDEMPOTENT_WRITE, {IDEMPOTENT_WRITE}),
        (ALTER_CONFIGS, {ALTER_CONFIGS, DESCRIBE_CONFIGS}),
        (DESCRIBE_CONFIGS, {DESCRIBE_CONFIGS}),
        (TWO_PHASE_COMMIT, {TWO_PHASE_COMMIT}),
        (ALL, set(OPERATIONS) - {ALL}),
    ],
)
def test_what_an_allow_implies_and_a_deny_does_not(granted: int, implied: set[int]) -> None:
    def allowed(authorizer: StandardAuthorizer) -> set[int]:
        return {one for one in OPERATIONS[1:] if authorizer.authorize(ALICE, HERE, one, (TOPIC, "t"))}

    authorizer = StandardAuthorizer()
    authorizer.add(b"1", acl(operation=granted))
    assert allowed(authorizer) == implied
    authorizer.add(b"2", acl("*", operation=ALL))
    authorizer.add(b"3", acl(operation=granted, permission=DENY))
    assert allowed(authorizer) == (set() if granted == ALL else set(OPERATIONS) - {ALL, granted})
    for number in (b"1", b"2", b"3"):
        authorizer.remove(number)
    assert allowed(authorizer) == set()


def test_decisions_are_forgotten_with_every_change_and_beyond_their_number() -> None:
    authorizer = StandardAuthorizer(decisions_max=3)
    names = [f"t{number}" for number in range(10)]
    assert not any(authorizer.authorize(ALICE, HERE, READ, (TOPIC, name)) for name in names)
    for number, name in enumerate(names):
        authorizer.add(str(number).encode(), acl(name))
        assert authorizer.authorize(ALICE, HERE, READ, (TOPIC, name))
    for number, name in enumerate(names):
        authorizer.remove(str(number).encode())
        assert not authorizer.authorize(ALICE, HERE, READ, (TOPIC, name))


def bytecodes(authorizer: StandardAuthorizer, name: str) -> int:
    """How many bytecodes a decision takes."""
    return count_bytecodes(lambda: authorizer.authorize(ALICE, HERE, WRITE, (TOPIC, name)))


def test_a_decision_costs_the_same_among_ten_thousand() -> None:
    few, many = StandardAuthorizer(), StandardAuthorizer()
    for authorizer in (few, many):
        authorizer.add(b"mine", acl("t", WRITE))
    for number in range(10_000):
        other = AclBinding(TOPIC, f"t{number}", LITERAL, f"User:{number % 100}", "*", WRITE, ALLOW)
        many.add(str(number).encode(), other)
    assert bytecodes(many, "t") == bytecodes(few, "t") > 0
    assert bytecodes(many, "t") < 100  # remembered
