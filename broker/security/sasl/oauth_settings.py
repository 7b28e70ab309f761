"""`OAuthSettings`: how a listener checks the tokens of OAUTHBEARER. Source: ``ConfigurationUtils``,
``VerificationKeyResolverFactory``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.credentials.jaas import OAUTHBEARER
from oncelog.broker.credentials.stores import StoreError
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.seams.extras import install_command
from oncelog.broker.seams.tls import read_file
from oncelog.broker.security.sasl.oauthbearer import SIGNED, UNSECURED, OAuthToken
from oncelog.broker.security.sasl.unsecured_tokens import UnsecuredTokens

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from oncelog.broker.security.sasl.jwks import KeyFile, KeyUrl, SetKeys
    from oncelog.broker.security.settings import ListenerSettings

HANDLER_KEY = "sasl.server.callback.handler.class"
URL_KEY = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS_KEY = "oncelog.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES_KEY = "oncelog.sasl.oauthbearer.allowed.files"

log = get_logger(__name__)


class OAuthSettings:
    """The validator that a listener's settings name. ``options`` are those of the JAAS text.

    Raises ConfigError.
    """

    def __init__(
        self, settings: ListenerSettings, options: Mapping[str, str], now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._options = options
        self._url: KeyUrl | None = None
        self.validate: Callable[[str], OAuthToken]
        """Returns the principal and the end of a token. Raises TokenRefused."""
        handler = self._text(HANDLER_KEY) or UNSECURED
        if handler == UNSECURED:
            log.warning(
                "OAUTHBEARER without signatures: everybody can make such a token", listener=settings.name
            )
            try:
                self.validate = UnsecuredTokens(options, now_ms)
            except ValueError as error:
                raise self._error("sasl.jaas.config", None, str(error)) from None
        elif handler == SIGNED:
            self.validate = self._signed(now_ms)
        else:
            raise self._error(HANDLER_KEY, handler, f"there are {SIGNED} and {UNSECURED}")

    async def prepare(self) -> None:
        """Fetch the keys of signed tokens. Raises ConfigError if that fails."""
        if self._url is not None:
            try:
                await self._url.fetch()
            except (OSError, ValueError) as error:
                raise self._error(URL_KEY, self._text(URL_KEY), str(error)) from None

    async def run(self) -> None:
        """Fetch them again from time to time, until cancelled."""
        if self._url is not None:
            await self._url.run()

    def _signed(self, now_ms: Callable[[], int]) -> Callable[[str], OAuthToken]:
        try:
            from oncelog.broker.security.sasl.signed_tokens import SignedTokens, TokenRules
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"listener {self._settings.name}: signed tokens need {error.name}: {install_command('security')}"
            ) from None
        number = self._settings.mechanism_int
        rules = TokenRules(
            audiences=[
                one for one in (self._text("sasl.oauthbearer.expected.audience") or "").split(",") if one
            ],
            issuer=self._text("sasl.oauthbearer.expected.issuer") or None,
            skew_s=number(OAUTHBEARER, "sasl.oauthbearer.clock.skew.seconds"),
            scope_claim=self._text("sasl.oauthbearer.scope.claim.name") or "scope",
            subject_claim=self._text("sasl.oauthbearer.sub.claim.name") or "sub",
        )
        keys = self._keys()
        for is_checked, expected, waiver in (
            (
                rules.audiences,
                "sasl.oauthbearer.expected.audience",
                "sasl.oauthbearer.allow.unverified.audience",
            ),
            (rules.issuer, "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.allow.unverified.issuer"),
        ):
            if not is_checked and (self._text(waiver) or "").lower() != "true":
                raise self._error(
                    expected, None, f"signed tokens need it; with {waiver}=true any value is taken"
                )
        return SignedTokens(keys, rules, now_ms)

    def _keys(self) -> KeyFile | KeyUrl | SetKeys:
        from oncelog.broker.security.sasl.jwks import KeyFile, KeyUrl, RefreshTimes, SetKeys

        url = self._text(URL_KEY)
        if not url:
            raise self._error(URL_KEY, None, f"{SIGNED} needs the URL of the tokens' signing keys")
        parts = urlsplit(url)
        if parts.scheme == "data":
            try:
                return SetKeys(url)
            except ValueError as error:
                raise self._error(URL_KEY, url, str(error)) from None
        if parts.scheme not in ("http", "https", "file"):
            raise self._error(URL_KEY, url, "expected a URL that begins with https://, http:// or file://")
        path = unquote(parts.path)
        if url not in self._allowed(ALLOWED_URLS_KEY) and not (
            parts.scheme == "file" and path in self._allowed(ALLOWED_FILES_KEY)
        ):
            raise self._error(
                URL_KEY, url, f"it is not allowed: {ALLOWED_URLS_KEY} lists the URLs that may be read"
            )
        if parts.scheme == "file":
            try:
                return KeyFile(path)
            except (OSError, ValueError) as error:
                raise self._error(URL_KEY, url, getattr(error, "strerror", None) or str(error)) from None
        number = self._settings.mechanism_int
        times = RefreshTimes(
            number(OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            number(OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            number(OAUTHBEARER, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        )
        if times.refresh_ms <= 0 or not 0 <= times.backoff_ms <= times.backoff_max_ms:
            raise self._error(
                "sasl.oauthbearer.jwks.endpoint.refresh.ms",
                None,
                f"{times} cannot be: expected positive times",
            )
        self._url = KeyUrl(url, times, self._tls() if parts.scheme == "https" else None)
        return self._url

    def _tls(self) -> ssl.SSLContext:
        """Return the TLS context for an https URL, by the options ``ssl.*`` of the JAAS text, as in Kafka."""
        from oncelog.broker.credentials.client_tls import ENDPOINT_KEY, client_tls

        values = {key: text for key, text in self._options.items() if key != ENDPOINT_KEY}
        try:
            return client_tls(values, read_file)
        except StoreError as error:
            raise self._error("sasl.jaas.config", None, str(error)) from None

    def _text(self, key: str) -> str | None:
        text = self._settings.of_mechanism(OAUTHBEARER, key)
        return None if text is None else text.strip()

    def _allowed(self, key: str) -> list[str]:
        return self._settings.items(key)

    def _error(self, key: str, value: str | None, why: str) -> ConfigError:
        name = f"listener.name.{self._settings.name.lower()}.{OAUTHBEARER.lower()}.{key}"
        return ConfigError(f"{name}{'' if value is None else '=' + value}: {why}")
