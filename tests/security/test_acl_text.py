"""ACLs in words."""

from __future__ import annotations

import pytest

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.security.acl_text import parse_acls

ALLOW, DENY, LITERAL, PREFIXED = 3, 2, 3, 4
READ, WRITE, ALL, IDEMPOTENT_WRITE = 3, 4, 2, 12


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("User:app Read topic:orders", (2, "orders", LITERAL, "User:app", "*", READ, ALLOW)),
        ("User:* all group:*", (3, "*", LITERAL, "User:*", "*", ALL, ALLOW)),
        ("deny User:app Write topic:or*", (2, "or", PREFIXED, "User:app", "*", WRITE, DENY)),
        (
            "User:CN=a,O=b c IdempotentWrite cluster from 10.0.0.1",
            (4, "kafka-cluster", LITERAL, "User:CN=a,O=b c", "10.0.0.1", IDEMPOTENT_WRITE, ALLOW),
        ),
        ("User:a Read group:g from 10.0.0.0/8", (3, "g", LITERAL, "User:a", "10.0.0.0/8", READ, ALLOW)),
        ("User:a WRITE transactional-id:t:1", (5, "t:1", LITERAL, "User:a", "*", WRITE, ALLOW)),
    ],
)
def test_acls(text: str, expected: tuple[object, ...]) -> None:
    assert parse_acls([text], "--acl") == [expected]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"--acl=: expected \[deny\] PRINCIPAL OPERATION"),
        ("app Read topic:t", r"expected \[deny\]"),
        ("User:app Look topic:t", "Look is no operation; there are ALL, READ"),
        ("User:app Read table:t", "table:t is no resource; there are topic, group"),
        ("User:app Read topic", "topic is no resource"),
        ("User:app Read cluster:x", "cluster:x is no resource"),
        (
            "User:a Read group:g from 10.0.0.0/33",
            r"Invalid CIDR notation '10.0.0.0/33': Value \[33\] not in range",
        ),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_acls([text], "--acl")
