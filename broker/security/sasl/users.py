"""`Users`: users with passwords that a broker is started with. They log in by PLAIN and by SCRAM."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.broker.seams.entropy import unguessable
from oncelog.wire.stored.metadata import UserScramCredentialRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.credentials.scram import ScramMechanism
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata

ITERATIONS = 4096
"""Of the SCRAM credentials; Kafka's least number."""
SALT_BYTES = 16


class Users(Mapping[str, str]):
    """Passwords by user's name. Its representation shows the names only.

    Raises ValueError, which quotes no password, for a name or a password that is empty or no text.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        for name, password in passwords.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"{name!r} is no name of a user")
            if not isinstance(password, str) or not password:
                raise ValueError(f"the password of {name} is empty, or no text")
        self._passwords = dict(passwords)

    def __getitem__(self, name: str) -> str:
        return self._passwords[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._passwords)

    def __len__(self) -> int:
        return len(self._passwords)

    def __repr__(self) -> str:
        return f"Users({', '.join(self._passwords)})"


def store_credentials(metadata: ClusterMetadata, users: Users) -> None:
    """Give every user the SCRAM credentials of its password, where they are missing or another password's."""
    if not users:
        return
    from oncelog.broker.credentials.scram import SCRAM_MECHANISMS

    records = [
        _record(mechanism, name, password)
        for name, password in users.items()
        for mechanism in SCRAM_MECHANISMS.values()
        if not _is_stored(metadata, mechanism, name, password)
    ]
    if records:
        metadata.commit(records)


def _is_stored(metadata: ClusterMetadata, mechanism: ScramMechanism, name: str, password: str) -> bool:
    record = metadata.image.scram_credentials.get((name, mechanism.number))
    if record is None:
        return False
    from oncelog.broker.credentials.scram import credential

    expected = credential(mechanism, password, bytes(record.salt), record.iterations)
    return hmac.compare_digest(expected.stored_key, bytes(record.stored_key))


def _record(mechanism: ScramMechanism, name: str, password: str) -> UserScramCredentialRecord:
    from oncelog.broker.credentials.scram import credential

    salt, stored_key, server_key, iterations = credential(
        mechanism, password, unguessable(SALT_BYTES), ITERATIONS
    )
    return UserScramCredentialRecord(name, mechanism.number, salt, stored_key, server_key, iterations)
