"""The rows of the table of rights about delegation tokens."""

from __future__ import annotations

from typing import Any

from compat_tests.security.rights import LEFT_OUT, TOKEN_FAILED, Case, Names, Right


def tokens_of_owner(response: Any, names: Names) -> Any:
    """The part of DescribeDelegationToken's response that is about the owner: ids and HMACs differ."""
    rows = [row for row in response["tokens"] if row["principal_name"] == names.owner]
    return response["error_code"], [(row["principal_type"], row["renewers"]) for row in rows]


TOKEN_CASES = (
    Case(
        "CreateDelegationToken",
        3,
        lambda names: {
            "owner_principal_type": "User",
            "owner_principal_name": names.owner,
            "renewers": [],
            "max_lifetime_ms": -1,
        },
        ((Right("CREATE_TOKENS", "user", TOKEN_FAILED),),),
        lambda response, names: {
            **response,
            **{key: bool(response[key]) for key in ("token_id", "hmac")},
            **{key: response[key] > 0 for key in response if key.endswith("_timestamp_ms")},
        },
        note="for another user",
        versions=(3, 3),
        logged_in=True,
    ),
    Case(
        "DescribeDelegationToken",
        3,
        lambda names: {"owners": None},
        (
            (
                Right("DESCRIBE", "delegation token", LEFT_OUT),
                Right("DESCRIBE_TOKENS", "user", LEFT_OUT),
            ),
        ),
        tokens_of_owner,
        note="of another user",
        logged_in=True,
    ),
    Case(
        "RenewDelegationToken",
        2,
        lambda names: {"hmac": names.hmac, "renew_period_ms": -1},
        (),
        logged_in=True,
    ),
    Case(
        "ExpireDelegationToken",
        2,
        lambda names: {"hmac": names.hmac, "expiry_time_period_ms": -1},
        (),
        logged_in=True,
    ),
)
