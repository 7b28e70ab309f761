"""Random log-ins against `SaslServerAuthenticator`, in memory: ``python -m tests.security.login_fuzz COUNT [SEED]``.

A sequence is some frames: of the log-in and of other APIs, whole and damaged, in any order, with right and wrong
tokens of any mechanism, and renewals. Nothing may be raised, and nobody gets in unless the frame with which it gets in
holds the proof that this user has.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from oncelog.broker.credentials.scram import SCRAM_MECHANISMS, ScramCredential, credential
from oncelog.broker.security.sasl.authenticator import SaslServerAuthenticator, State
from oncelog.broker.security.sasl.mechanism import SaslServer
from oncelog.broker.security.sasl.oauthbearer import OAuthBearerServer
from oncelog.broker.security.sasl.plain import PlainServer
from oncelog.broker.security.sasl.scram import ScramServer, TokenCredential
from oncelog.broker.security.sasl.signed_tokens import SignedTokens, TokenRules, parse_keys
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.common.sasl_client import ScramClient, frame_of
from tests.common.tokens import Issuer, key_set, unsecured

NOW_MS = 1_700_000_000_000
USERS = {"alice": "a-secret", "bob,=": "b-secret"}
TOKEN_ID, TOKEN_PASSWORD = "token-1", "hmac"
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
ISSUER, STRANGER = Issuer(), Issuer()
TIMES = {"iat": NOW_MS // 1000, "exp": NOW_MS // 1000 + 60}
OAUTH = {user: ISSUER.token({"sub": user, **TIMES}) for user in ("alice", "carol")}
FORGED = (
    unsecured({"sub": "nobody", **TIMES}),
    STRANGER.token({"sub": "stranger", **TIMES}),
    ISSUER.token({"sub": "alice", "iat": 1, "exp": 5}),
    "a.b.c",
)
FRAMES_MAX = 9

_CREDENTIALS = {
    (name, user): credential(mechanism, password, b"salt-of-" + user.encode(), 4096)
    for name, mechanism in SCRAM_MECHANISMS.items()
    for user, password in {**USERS, TOKEN_ID: TOKEN_PASSWORD}.items()
}


class _Keys:
    _KEYS = parse_keys(key_set(ISSUER))

    def keys(self) -> list[dict[str, Any]]:
        return self._KEYS

    def missed(self, key_id: str) -> None:
        pass


class Login:
    """One sequence."""

    usual_mechanisms: tuple[str, ...] = MECHANISMS

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._authenticator = SaslServerAuthenticator(
            MECHANISMS, self._new_server, lambda _: 0, lambda: NOW_MS, lambda: chance.random() < 0.5
        )
        self._scram: tuple[ScramClient, str] | None = None
        """The latest client of SCRAM, and the principal that it can prove to be; empty for none."""
        self._evidence: list[tuple[bytes, str]] = [
            *((f"{user}\0{password}".encode(), user) for user, password in USERS.items()),
            *((token.rpartition(".")[0].encode(), user) for user, token in OAUTH.items()),
        ]
        """What proves who somebody is."""
        self.answer = b""
        self.mechanism, self._version = "", 1
        self.completed = 0

    def _new_server(self, mechanism: str) -> SaslServer:
        if mechanism == "PLAIN":
            return PlainServer(USERS.get)
        if mechanism == "OAUTHBEARER":
            return OAuthBearerServer(SignedTokens(_Keys(), TokenRules(), lambda: NOW_MS))

        def credential_of(user: str) -> ScramCredential | None:
            return _CREDENTIALS[mechanism, user] if user in USERS else None

        def token_of(token_id: str) -> TokenCredential | None:
            if token_id != TOKEN_ID:
                return None
            return TokenCredential(_CREDENTIALS[mechanism, TOKEN_ID], "owner", NOW_MS + 1)

        return ScramServer(
            SCRAM_MECHANISMS[mechanism], credential_of, token_of, lambda: f"{self.chance.getrandbits(64)}"
        )

    def run(self) -> None:
        """Raises AssertionError if somebody gets in without proof, and whatever the authenticator raises."""
        authenticator = self._authenticator
        for _ in range(self.chance.randint(1, FRAMES_MAX)):
            if authenticator.state is State.COMPLETE:
                authenticator.reauthenticate()
            before = authenticator.principal_name
            frame = self.frame()
            step = authenticator.handle(memoryview(frame))
            self.answer = step.send
            if step.failed is not None:
                assert authenticator.state is State.FAILED
                assert authenticator.principal_name == before
                return
            if authenticator.state is State.COMPLETE:
                self._check(frame, before)

    def _check(self, frame: bytes, before: str) -> None:
        self.completed += 1
        name = self._authenticator.principal_name
        assert name in self.proven(frame), (name, frame)
        assert before in ("", name), (before, name)

    @property
    def expects_token(self) -> bool:
        """Whether a client would send a token now."""
        return self._authenticator.state is State.AUTHENTICATE

    @property
    def principal_name(self) -> str:
        """Who has logged in; empty for nobody."""
        return self._authenticator.principal_name

    def proven(self, frame: bytes) -> set[str]:
        """Who can send this frame only with a password or a token."""
        return {user for proof, user in self._evidence if proof in frame}

    # -- frames

    def frame(self) -> bytes:
        # Mostly what a client would send next.
        frame = self._next_frame() if self.chance.random() < 0.85 else self._any_frame()
        if self.chance.random() < 0.12:
            frame = self._damaged(frame)
        return frame

    def _next_frame(self) -> bytes:
        return self._token_frame(self._token()) if self.expects_token else self._handshake()

    def _any_frame(self) -> bytes:
        chance = self.chance
        kind = chance.randrange(6)
        if kind == 0:
            version = chance.randint(3, ApiVersionsRequest.MAX_VERSION)
            meant = (chance.choice((None, "", "cluster")), chance.choice((-1, 1, 2))) if version > 4 else ()
            return frame_of(ApiVersionsRequest("fuzz", "1", *meant), version)
        if kind == 1:
            return frame_of(MetadataRequest([]), chance.randint(1, MetadataRequest.MAX_VERSION))
        if kind == 2:
            return chance.randbytes(chance.randrange(40))
        if kind == 3:
            return self._handshake()
        return self._token_frame(self._token())

    def _handshake(self) -> bytes:
        usual: tuple[str, ...] = (self.mechanism,) if self.principal_name else self.usual_mechanisms
        self.mechanism = self.chance.choice((*usual * 5, *MECHANISMS, "GSSAPI", ""))
        self._version = self.chance.randint(0, 1)
        return frame_of(SaslHandshakeRequest(self.mechanism), self._version)

    def _token_frame(self, token: bytes) -> bytes:
        if (self._version == 0) != (self.chance.random() < 0.05):
            return token
        return frame_of(SaslAuthenticateRequest(token), self.chance.randint(0, 2))

    def _damaged(self, frame: bytes) -> bytes:
        chance = self.chance
        position = chance.randrange(len(frame) + 1)
        match chance.randrange(4):
            case 0:
                return frame[:position]
            case 1:
                return frame[:position] + chance.randbytes(1) + frame[position + 1 :]
            case 2:
                return frame[:position] + chance.randbytes(chance.randrange(5)) + frame[position:]
            case _:
                return frame + frame[position:]

    def _token(self) -> bytes:
        chance = self.chance
        user = chance.choice([*USERS, "carol", TOKEN_ID, "owner"])
        password = chance.choice([*USERS.values(), TOKEN_PASSWORD, "", "x"])
        kind = chance.randrange(8)
        if chance.random() < 0.8:
            kind = {"PLAIN": chance.choice((0, 0, 2)), "OAUTHBEARER": 3}.get(self.mechanism, 5)
        if kind <= 1:
            return f"{chance.choice(['', user, 'alice'])}\0{user}\0{USERS.get(user, password)}".encode()
        if kind == 2:
            return f"\0{user}\0{password}".encode()
        if kind == 3:
            token = chance.choice([*OAUTH.values(), *FORGED])
            return f"n,{chance.choice(['', 'a=alice'])},\1auth=Bearer {token}\1\1".encode()
        if kind == 4:
            return chance.choice((b"\1", b"", b"n,,", b"\0\0", b"=" * 50))
        if self._scram is not None and b"r=" in self.answer and chance.random() < 0.9:
            return self._scram_final()
        return self._scram_first(user, password)

    def _scram_first(self, user: str, password: str) -> bytes:
        chance = self.chance
        known = {**USERS, TOKEN_ID: TOKEN_PASSWORD}
        if chance.random() < 0.7:
            password = known.get(user, password)
        extensions = chance.choice(("", ",tokenauth=true", ",tokenauth=no"))
        owner = "owner" if user == TOKEN_ID else user
        is_right = known.get(user) == password
        mechanism = chance.choice(list(SCRAM_MECHANISMS))
        if self.mechanism in SCRAM_MECHANISMS and chance.random() < 0.9:
            mechanism = self.mechanism
        client = ScramClient(mechanism, user, password, extensions)
        self._scram = (client, owner if is_right else "")
        return client.first()

    def _scram_final(self) -> bytes:
        assert self._scram is not None
        client, user = self._scram
        start = self.answer.find(b"r=")
        try:
            final = client.final(self.answer[start:].split(b"\0")[0])
        except (KeyError, ValueError):
            return b"c=biws,r=x,p=AAAA"
        if user:
            self._evidence.append((final, user))
        if self.chance.random() < 0.2:
            return final.replace(b"p=", b"p=" + self.chance.choice((b"A", b"AAAA")))
        return final


def fuzz(count: int, seed: int) -> int:
    """Run so many sequences. Returns how many log-ins were complete. Raises AssertionError, which names the seed."""
    completed = 0
    for number in range(count):
        login = Login(random.Random(f"{seed}-{number}"))
        try:
            login.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, sequence {number}: {error!r}") from error
        completed += login.completed
    return completed


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    start = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(32)
    print(f"seed {start}: {wanted} sequences, {fuzz(wanted, start)} log-ins complete")
