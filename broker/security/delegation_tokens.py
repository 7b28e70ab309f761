"""`DelegationTokens`: tokens by which a client logs in as their owner, for a time (KIP-48).

A token is its id and the HMAC of the id, which is its password for SCRAM. The metadata keeps tokens without the HMAC:
the HMAC needs ``delegation.token.secret.key``. Source: ``DelegationTokenControlManager``, ``DelegationTokenManager``,
``DelegationTokenCache``.
"""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.seams.entropy import unguessable
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.primitives import uuid_to_text
from oncelog.wire.stored.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.credentials.scram import ScramCredential, ScramMechanism
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.security.sasl.scram import TokenCredential
    from oncelog.wire.steps import Steps

USER_TYPE = "User"
SALT_BYTES = 16
REMOVED_AT_ONCE = 1000
"""Expired tokens that one batch of records removes (``MAX_RECORDS_PER_EXPIRATION``)."""
_LONG_MAX = 2**63 - 1


class Principal(NamedTuple):
    """A principal in two parts."""

    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal of a text such as ``User:alice``."""
        kind, _, name = text.partition(":")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class DelegationTokens:
    """The tokens in ``metadata``, by broker time. Without the secret in ``config`` there are none."""

    def __init__(self, config: BrokerConfig, metadata: ClusterMetadata, clock: Clock) -> None:
        secret = config.delegation_token_secret_key
        self._secret = secret.encode() if secret else None
        self._lifetime_ms = config.delegation_token_max_lifetime_ms
        self._renewal_ms = config.delegation_token_expiry_time_ms
        self.check_interval_ms = config.delegation_token_expiry_check_interval_ms
        self._metadata = metadata
        self._clock = clock
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """By token id and mechanism: they take milliseconds to make."""
        self._hmacs: dict[str, bytes] = {}
        """By token id, those that a search has made."""
        self._token_ids: dict[bytes, str] = {}
        """The token ids of `_hmacs`."""

    @property
    def is_enabled(self) -> bool:
        """Whether there is a secret."""
        return self._secret is not None

    def require_enabled(self) -> None:
        """Raises KafkaError without a secret."""
        if self._secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token."""
        assert self._secret is not None
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def all(self) -> list[DelegationTokenRecord]:
        """Return all tokens."""
        return list(self._metadata.image.delegation_tokens.values())

    def credential(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """Return the SCRAM credential of a token, None for an unknown token."""
        token = self._metadata.image.delegation_tokens.get(token_id)
        if token is None or self._secret is None:
            return None
        from oncelog.broker.credentials.scram import credential
        from oncelog.broker.security.sasl.scram import TokenCredential

        key = (token_id, mechanism.name)
        known = self._credentials.get(key)
        if known is None:
            password = base64.b64encode(self.hmac(token_id)).decode()
            known = credential(mechanism, password, unguessable(SALT_BYTES), mechanism.iterations_min)
            self._credentials[key] = known
        return TokenCredential(known, Principal.parse(token.owner).name, token.expiration_timestamp)

    # -- changes

    def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms: int
    ) -> DelegationTokenRecord:
        """Make a token. ``lifetime_ms``: milliseconds after which it cannot be renewed any more; 0 or less: the
        configured time.

        Raises KafkaError.
        """
        self.require_enabled()
        if any(renewer.type != USER_TYPE for renewer in renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        now_ms = self._clock.now_ms()
        limit_ms = min(self._lifetime_ms, lifetime_ms) if lifetime_ms > 0 else self._lifetime_ms
        max_ms = _sum(now_ms, limit_ms)
        token = DelegationTokenRecord(
            str(owner),
            str(requester),
            [str(renewer) for renewer in renewers],
            now_ms,
            max_ms,
            min(max_ms, _sum(now_ms, self._renewal_ms)),
            uuid_to_text(self._metadata.new_uuid()),
        )
        self._metadata.commit([token])
        return token

    def renew(self, shown: bytes, requester: Principal, period_ms: int) -> Steps[int]:
        """Let a token expire ``period_ms`` from now; 0 or less: the configured time. Returns its new end (wall time,
        ms). Raises KafkaError.
        """
        token = yield from self._find(shown)
        self._check_time(token)
        _check_renewer(token, requester)
        period_ms = min(self._renewal_ms, period_ms) if period_ms > 0 else self._renewal_ms
        return self._expire_at(token, _sum(self._clock.now_ms(), period_ms))

    def expire(self, shown: bytes, requester: Principal, period_ms: int) -> Steps[int]:
        """Let a token expire ``period_ms`` from now; a negative time removes it. Returns its new end (wall time, ms).
        Raises KafkaError.
        """
        token = yield from self._find(shown)
        _check_renewer(token, requester)
        now_ms = self._clock.now_ms()
        if period_ms < 0:
            self._metadata.commit([RemoveDelegationTokenRecord(token.token_id)])
            self._forget([token.token_id])
            return now_ms
        self._check_time(token)
        return self._expire_at(token, _sum(now_ms, period_ms))

    def remove_expired(self) -> Steps[int]:
        """Remove expired tokens. Returns their number."""
        now_ms, removed = self._clock.now_ms(), 0
        expired: list[str] = []
        for token in self.all():
            if _is_expired(token, now_ms):
                expired.append(token.token_id)
            if len(expired) == REMOVED_AT_ONCE:
                removed += self._remove(expired)
                expired.clear()
            yield
        return removed + self._remove(expired)

    def _remove(self, token_ids: Sequence[str]) -> int:
        """Remove tokens, unless another node has removed them meanwhile. Returns how many."""
        left = [one for one in token_ids if one in self._metadata.image.delegation_tokens]
        if left:
            self._metadata.commit([RemoveDelegationTokenRecord(one) for one in left])
        self._forget(token_ids)
        return len(left)

    def _find(self, shown: bytes) -> Steps[DelegationTokenRecord]:
        """Return the token with an HMAC. Raises KafkaError."""
        self.require_enabled()
        if shown not in self._token_ids:
            for token_id in list(self._metadata.image.delegation_tokens):
                if token_id not in self._hmacs:
                    made = self._hmacs[token_id] = self.hmac(token_id)
                    self._token_ids[made] = token_id
                    yield
        token = self._metadata.image.delegation_tokens.get(self._token_ids.get(shown, ""))
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    def _check_time(self, token: DelegationTokenRecord) -> None:
        if _is_expired(token, self._clock.now_ms()):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    def _expire_at(self, token: DelegationTokenRecord, at_ms: int) -> int:
        at_ms = min(token.max_timestamp, at_ms)
        changed = DelegationTokenRecord(
            token.owner,
            token.requester,
            token.renewers,
            token.issue_timestamp,
            token.max_timestamp,
            at_ms,
            token.token_id,
        )
        self._metadata.commit([changed])
        return at_ms

    def _forget(self, token_ids: Iterable[str]) -> None:
        forgotten = frozenset(token_ids)
        for key in [key for key in self._credentials if key[0] in forgotten]:
            del self._credentials[key]
        for token_id in forgotten:
            self._token_ids.pop(self._hmacs.pop(token_id, b""), None)


def _is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def owners_and_renewers(token: DelegationTokenRecord) -> set[str]:
    """Return who owns the token, may renew it, or asked for it (``TokenInformation.ownerOrRenewer``)."""
    return {token.owner, token.requester, *token.renewers}


def _check_renewer(token: DelegationTokenRecord, requester: Principal) -> None:
    if str(requester) not in (token.owner, *token.renewers):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(_LONG_MAX, now_ms + duration_ms)
