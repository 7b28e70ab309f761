"""Makes docs/rights.md of the table of rights: ``python -m compat_tests.security.rights_page > docs/rights.md``."""

from compat_tests.security.rights import Case
from compat_tests.security.rights_admin import ADMIN_CASES
from compat_tests.security.rights_tokens import TOKEN_CASES
from compat_tests.security.rights_topics import SHARE_STATE_CASES, TOPIC_AND_GROUP_CASES
from tests.common.definitions import api_key

ALL_CASES = (*TOPIC_AND_GROUP_CASES, *SHARE_STATE_CASES, *ADMIN_CASES, *TOKEN_CASES)

HEAD = """\
# Rights

With `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer` every API asks for these rights, in
this order, as Kafka does, and answers whom is denied as told here: with an error for the whole request or in the row,
or without the row. ApiVersions, SaslHandshake, SaslAuthenticate, GetTelemetrySubscriptions and PushTelemetry need none,
nor do RenewDelegationToken and ExpireDelegationToken: a token's owner and its renewers may, all others get
DELEGATION_TOKEN_OWNER_MISMATCH. An ALLOW for READ, WRITE, DELETE or ALTER implies DESCRIBE, one for ALTER_CONFIGS
implies DESCRIBE_CONFIGS.

A share group's dead-letter queue is written by the broker, as itself: the rights of the group's members on the queue
are not asked for. In Kafka the broker's own principal needs WRITE on the queue, and CREATE to create it, if it is no
super user; oncelog asks itself for no right (`compat_tests/security/test_dead_letter_rights.py`). So whoever has
ALTER_CONFIGS on a group can have what its members reject copied, with keys and values, to any topic that someone with
ALTER_CONFIGS on that topic has made a queue (`errors.deadletterqueue.group.enable`). Whoever has READ on the queue can
read it there.

`make docs` makes this page from `compat_tests/security/rights_….py`. `compat_tests/security/test_rights.py` tests every
row, with every subset of an API's rights, on oncelog and on a real Kafka.

| API | right | answer to who lacks it |
|---|---|---|
"""


def page() -> str:
    """Return the whole page, as Markdown."""
    cases = sorted(ALL_CASES, key=lambda case: api_key(case.api))
    return HEAD + "".join(row for case in cases for row in _rows(case))


def _rows(case: Case) -> list[str]:
    rows = []
    for alternatives in (*case.rights, *((one,) for one in case.also)):
        rights = " or ".join(f"{one.operation} on the {one.resource}" for one in alternatives)
        notes = "; ".join(dict.fromkeys(one.note for one in alternatives if one.note))
        name = f"{case.api} {case.note}".strip()
        answer = alternatives[0].denied + (f" ({notes})" if notes else "")
        rows.append(f"| {name} | {rights} | {answer} |\n")
    return rows


if __name__ == "__main__":
    print(page(), end="")
