"""`TokenIssuer`: signs the tokens of a broker's clients (OAUTHBEARER). It needs the extra ``security``."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.broker.config.listeners import resolve_listeners
from oncelog.broker.control.errors import InvalidArgumentError, UnsupportedError
from oncelog.broker.control.options import BrokerOptions
from oncelog.broker.credentials.jaas import OAUTHBEARER
from oncelog.broker.seams.extras import install_command
from oncelog.broker.security.sasl.oauthbearer import SIGNED
from oncelog.broker.security.settings import ListenerSettings

AUDIENCE = "oncelog"
ISSUER = "https://issuer.oncelog.example"
KEY_ID = "oncelog-1"
DAY_S = 86_400


@dataclass(frozen=True)
class Token:
    """A token for a client of a broker with ``oauth=True``; made by `Broker.token`. ``str(token)`` is what it shows."""

    text: str = field(repr=False)
    claims: Mapping[str, object]
    """The claims in it, by name."""
    ends_at: float
    """Real time (seconds since 1970) when it ends, if nobody moves the broker's."""

    def __str__(self) -> str:
        return self.text


class TokenIssuer:
    """An issuer of its own for each broker with ``oauth``.

    Raises InvalidArgumentError; UnsupportedError without the extra.
    """

    def __init__(self, oauth: bool) -> None:
        if oauth is not True:
            raise InvalidArgumentError(f"oauth={oauth!r}: expected True or False")
        try:
            import jwt
            from cryptography.hazmat.primitives.asymmetric import ec
        except ModuleNotFoundError as error:
            raise UnsupportedError(f"oauth=True needs {error.name}: {install_command('security')}") from None
        self._jwt = jwt
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._strange_key = ec.generate_private_key(ec.SECP256R1())

    def broker_config(self) -> dict[str, str]:
        """Return the keys of the broker."""
        public = self._jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        keys = {"keys": [{**public, "kid": KEY_ID, "alg": "ES256", "use": "sig"}]}
        encoded = b64encode(json.dumps(keys).encode()).decode()
        return {
            "sasl.server.callback.handler.class": SIGNED,
            "sasl.oauthbearer.jwks.endpoint.url": f"data:application/json;base64,{encoded}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }

    def token(
        self,
        options: BrokerOptions,
        name: str,
        broker_s: float,
        real_s: float,
        *,
        expired: bool,
        not_yet_valid: bool,
        of_a_stranger: bool,
        unsigned: bool,
        key_id: str | None,
        audience: str | None,
        issuer: str | None,
        lifetime: float,
        claims: Mapping[str, object] | None,
    ) -> Token:
        """Return a token; see `Broker.token`. ``broker_s``, ``real_s``: the broker's and the real time (seconds).

        Raises InvalidArgumentError.
        """
        if expired and not_yet_valid:
            raise InvalidArgumentError("expired= and not_yet_valid= exclude each other")
        if isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or not lifetime > 0:
            raise InvalidArgumentError(
                f"lifetime={lifetime!r}: expected seconds above 0; expired=True has ended"
            )
        if not isinstance(claims, Mapping | None):
            raise InvalidArgumentError(
                f"claims={claims!r}: expected a dictionary, such as {{'scope': 'orders'}}"
            )
        now = int(broker_s)
        begin = now + DAY_S if not_yet_valid else now - DAY_S - lifetime if expired else now
        end = begin + lifetime
        said: dict[str, object] = {**_expected(options, name), "iat": min(begin, now), "exp": end}
        if not_yet_valid:
            said["nbf"] = begin
        said |= {claim: text for claim, text in (("aud", audience), ("iss", issuer)) if text is not None}
        said = {claim: value for claim, value in {**said, **(claims or {})}.items() if value is not None}
        if unsigned:
            text = ".".join((_part({"alg": "none"}), _part(said), ""))
        else:
            key = self._strange_key if of_a_stranger else self._key
            try:
                text = self._jwt.encode(said, key, "ES256", headers={"kid": key_id or KEY_ID})
            except TypeError as error:
                raise InvalidArgumentError(f"claims={claims!r}: {error}") from None
        return Token(text, said, real_s + end - broker_s)


def _expected(options: BrokerOptions, name: str) -> dict[str, object]:
    """Return the claims that a broker with these options expects of a client with this name."""
    config = options.broker_config()
    listener = resolve_listeners(config, lambda: options.host_name)[0][0].bind.listener
    settings = ListenerSettings(listener, config)

    def text(key: str) -> str:
        return (settings.of_mechanism(OAUTHBEARER, f"sasl.oauthbearer.{key}") or "").strip()

    claims: dict[str, object] = {text("sub.claim.name") or "sub": name}
    if issuer := text("expected.issuer"):
        claims["iss"] = issuer
    if audience := text("expected.audience").split(",")[0]:
        claims["aud"] = audience
    return claims


def _part(content: Mapping[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
