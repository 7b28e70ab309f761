"""Sources of a client's tokens for OAUTHBEARER: made here and unsigned, in a file, or fetched from an issuer.

Source: ``OAuthBearerUnsecuredLoginCallbackHandler``, ``OAuthBearerLoginCallbackHandler``, ``DefaultJwtRetriever``,
``FileJwtRetriever``, ``ClientCredentialsJwtRetriever``, ``HttpJwtRetriever``.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote_plus, unquote, urlsplit

from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.security.keys import number
from oncelog.broker.client.security.tls import client_context
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials.jaas import OAUTH_PACKAGE
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.tls import read_file
from oncelog.broker.seams.web import HttpStatusError, post_form
from oncelog.wire.errors import ErrorCode

HANDLER_KEY = "sasl.login.callback.handler.class"
URL_KEY = "sasl.oauthbearer.token.endpoint.url"
RETRIEVER_KEY = "sasl.oauthbearer.jwt.retriever.class"
ID_KEY, SECRET_KEY = (f"sasl.oauthbearer.client.credentials.client.{part}" for part in ("id", "secret"))
UNSECURED = f"{OAUTH_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
RETRIEVING = (
    f"{OAUTH_PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{OAUTH_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
)
_RETRIEVERS = {f"{OAUTH_PACKAGE}.{name}": name for name in ("DefaultJwtRetriever", "FileJwtRetriever")} | {
    f"{OAUTH_PACKAGE}.ClientCredentialsJwtRetriever": "ClientCredentialsJwtRetriever"
}
_LOGIN = "unsecuredLogin"
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION = re.compile(r"([A-Za-z]+)=([\x21-\x7E \t\r\n]+)")
FINAL_STATUSES = frozenset((*range(400, 408), 409, 410, 411, 413, 414, 415, 501, 505))
"""HTTP statuses after which asking again would not help (``HttpJwtRetriever``)."""


class Tokens(Protocol):
    """A source of tokens."""

    async def token(self) -> str:
        """Return a token that is valid now. Raises AuthenticationError."""


def tokens_of(values: Mapping[str, str], options: Mapping[str, str]) -> tuple[Tokens, dict[str, str]]:
    """Return the source that the keys and the options of the JAAS text name, and the extensions to send.

    Raises ConfigError.
    """
    handler = values.get(HANDLER_KEY, "").strip() or UNSECURED
    if handler == UNSECURED:
        return UnsecuredTokens(options), _extensions(options, f"{_LOGIN}Extension_")
    if handler not in RETRIEVING:
        raise ConfigError(f"{HANDLER_KEY}={handler}: there are {RETRIEVING[0]} and {UNSECURED}")
    extensions = _extensions(options, "extension_")
    retriever = _RETRIEVERS.get(values.get(RETRIEVER_KEY, "").strip() or next(iter(_RETRIEVERS)))
    if retriever is None:
        raise ConfigError(f"{RETRIEVER_KEY}={values[RETRIEVER_KEY]}: there are {', '.join(_RETRIEVERS)}")
    url = values.get(URL_KEY, "").strip()
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https", "file"):
        raise ConfigError(f"{URL_KEY}={url}: expected a URL that begins with https://, http:// or file://")
    if retriever == "FileJwtRetriever" or (scheme == "file" and retriever == "DefaultJwtRetriever"):
        return TokenFile(unquote(urlsplit(url).path)), extensions
    return FetchedTokens(url, values, options), extensions


def _extensions(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    found = {name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)}
    for name, text in found.items():
        if name == "auth" or _EXTENSION.fullmatch(f"{name}={text}") is None:
            raise ConfigError(f"sasl.jaas.config: {prefix}{name} is no extension that can be sent")
    return found


class UnsecuredTokens:
    """Tokens that nobody signs, made of the options of the JAAS text. Raises ConfigError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._claims: dict[str, object] = {}
        lifetime = options.get(f"{_LOGIN}LifetimeSeconds", "3600")
        try:
            self._lifetime_s = int(lifetime)
            for option, text in options.items():
                kind, _, name = option.removeprefix(_LOGIN).partition("Claim_")
                if not option.startswith(_LOGIN) or not name or kind not in ("String", "Number", "List"):
                    continue
                if name in ("iat", "exp"):
                    raise ConfigError(f"sasl.jaas.config: the claim {name} is set by the client itself")
                self._claims[name] = (
                    text if kind == "String" else float(text) if kind == "Number" else _list(text)
                )
        except ValueError:
            raise ConfigError("sasl.jaas.config: an option is no number") from None
        principal = options.get(f"{_LOGIN}PrincipalClaimName", "").strip() or "sub"
        if not isinstance(self._claims.get(principal), str):
            raise ConfigError(
                f"sasl.jaas.config: {_LOGIN}StringClaim_{principal} is missing, which says who the client is"
            )

    async def token(self) -> str:
        """See `Tokens`."""
        now_s = real_time.now_ms() / 1000
        parts = ({"alg": "none"}, {"exp": now_s + self._lifetime_s, "iat": now_s, **self._claims})
        return ".".join(_base64url(json.dumps(part).encode()) for part in parts) + "."


def _list(text: str) -> list[str]:
    return text[1:].split(text[0]) if len(text) > 1 else []


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class TokenFile:
    """A token in a file that somebody keeps fresh: it is read for each log-in."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def token(self) -> str:
        """See `Tokens`."""
        try:
            text = read_file(self._path).decode("utf-8", "replace").strip()
        except OSError as error:
            raise _failed(f"cannot read the token in {self._path}: {error.strerror}") from None
        if _TOKEN.fullmatch(text) is None:
            raise _failed(f"no token in {self._path}")
        return text


class FetchedTokens:
    """Tokens that an issuer gives for a client id and a secret (RFC 6749, 4.4). One is used for the share
    ``sasl.login.refresh.window.factor`` of its life. Raises ConfigError.
    """

    def __init__(self, url: str, values: Mapping[str, str], options: Mapping[str, str]) -> None:
        self._url = url
        client = values.get(ID_KEY, options.get("clientId", "")).strip()
        secret = values.get(SECRET_KEY, options.get("clientSecret", "")).strip()
        scope = values.get("sasl.oauthbearer.scope", options.get("scope", "")).strip()
        if not client or not secret:
            raise ConfigError(f"{URL_KEY}={url} needs {ID_KEY} and {SECRET_KEY}")
        if values.get("sasl.oauthbearer.header.urlencode", "").strip().lower() == "true":
            client, secret, scope = quote_plus(client), quote_plus(secret), quote_plus(scope)
        basic = base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._headers = {"Accept": "application/json", "Authorization": f"Basic {basic}"}
        self._body = "grant_type=client_credentials" + (f"&scope={scope}" if scope else "")
        self._backoff_s = number(values, "sasl.login.retry.backoff.ms", 100) / 1000
        self._backoff_max_s = number(values, "sasl.login.retry.backoff.max.ms", 10_000) / 1000
        self._timeout_s = number(values, "sasl.login.read.timeout.ms", 10_000) / 1000 or 10.0
        self._window = number(values, "sasl.login.refresh.window.factor", 0.8)
        tls = {name: text for name, text in options.items() if name.startswith("ssl.")}
        self._tls: ssl.SSLContext | None = client_context(tls, read_file) if tls else None
        self._token: tuple[str, float] | None = None
        """The latest, and until when (real time) it is used."""

    async def token(self) -> str:
        """See `Tokens`."""
        if self._token is None or real_time.monotonic() >= self._token[1]:
            text = await self._fetched()
            remaining_s = _expires_s(text) - real_time.now_ms() / 1000
            self._token = text, real_time.monotonic() + self._window * remaining_s
        return self._token[0]

    async def _fetched(self) -> str:
        pause_s, end = self._backoff_s, real_time.monotonic() + self._backoff_max_s
        while True:
            try:
                document = await post_form(self._url, self._headers, self._body, self._timeout_s, self._tls)
                return _token_in(document)
            except (OSError, ValueError) as error:
                is_final = isinstance(error, HttpStatusError) and error.status in FINAL_STATUSES
                left_s = end - real_time.monotonic()
                if is_final or left_s <= 0:
                    raise _failed(f"no token from {self._url}: {error}") from None
            await real_time.sleep(min(pause_s, left_s))
            pause_s *= 2


def _token_in(document: bytes) -> str:
    """Return the token in an issuer's response. Raises ValueError, which does not quote it."""
    try:
        found = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError("the response is no JSON") from None
    for name in ("access_token", "id_token"):
        text = found.get(name) if isinstance(found, dict) else None
        if isinstance(text, str) and _TOKEN.fullmatch(text.strip()):
            return text.strip()
    raise ValueError("the response has no access_token")


def _expires_s(token: str) -> float:
    """Return when a token ends (wall time, seconds). Raises AuthenticationError."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==="))
        return float(claims["exp"])
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        raise _failed("the issuer's token does not say when it ends (exp)") from None


def _failed(why: str) -> AuthenticationError:
    return AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"OAUTHBEARER: {why}")
