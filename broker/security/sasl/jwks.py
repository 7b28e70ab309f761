"""The keys for signatures of tokens: in the configuration, in a file, or fetched from a URL, again and again in real
time.

Source: ``JwksFileVerificationKeyResolver``, ``RefreshingHttpsJwks``.
"""

from __future__ import annotations

import ssl
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import trio

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.tls import read_file
from oncelog.broker.seams.web import modified_at, read_beside_the_loop
from oncelog.broker.security.sasl.oauthbearer import TokenRefused
from oncelog.broker.security.sasl.signed_tokens import parse_keys

MISSED_KEYS_MAX = 16
MISSED_KEY_SECONDS = 60.0
"""Real seconds between two refreshes that one unknown key causes."""
KEY_ID_LENGTH_MAX = 1000

log = get_logger(__name__)


class SetKeys:
    """See `KeySet`. The keys stand in the URL itself (``data:application/json;base64,…``, RFC 2397).

    Raises ValueError.
    """

    def __init__(self, url: str) -> None:
        head, _, content = url.partition(",")
        is_base64 = head.endswith(";base64")
        self._keys = parse_keys(b64decode(content) if is_base64 else unquote_to_bytes(content))

    def keys(self) -> Sequence[Mapping[str, Any]]:
        """See `KeySet`."""
        return self._keys

    def missed(self, key_id: str) -> None:
        """See `KeySet`."""


class KeyFile:
    """See `KeySet`. The file is read again when it has changed. Raises ValueError, OSError if it cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read_at = modified_at(path)
        self._keys = parse_keys(read_file(path))

    def keys(self) -> Sequence[Mapping[str, Any]]:
        """See `KeySet`."""
        try:
            changed_at = modified_at(self._path)
            if changed_at != self._read_at:
                self._keys = parse_keys(read_file(self._path))
                self._read_at = changed_at
        except (OSError, ValueError) as error:
            raise TokenRefused(f"the keys for signatures in {self._path} cannot be read: {error}") from None
        return self._keys

    def missed(self, key_id: str) -> None:
        """See `KeySet`."""


class RefreshTimes(NamedTuple):
    """Real milliseconds: until the keys are fetched again; after a failure, the first pause and the time for all."""

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


class KeyUrl:
    """See `KeySet`. `fetch` comes first; `run` fetches them again. ``tls`` is for an https URL."""

    def __init__(self, url: str, times: RefreshTimes, tls: ssl.SSLContext | None) -> None:
        self._url = url
        self._tls = tls
        self._times = times
        self._keys: list[dict[str, Any]] = []
        self._missed: dict[str, float] = {}
        """Unknown key -> the real time before which it causes no other refresh."""
        self._wanted = trio.Event()

    def keys(self) -> Sequence[Mapping[str, Any]]:
        """See `KeySet`."""
        return self._keys

    def missed(self, key_id: str) -> None:
        """See `KeySet`. The keys are fetched at once, but not often."""
        now = real_time.monotonic()
        if len(key_id) > KEY_ID_LENGTH_MAX or self._missed.get(key_id, now) > now:
            return
        self._missed.pop(key_id, None)
        self._missed[key_id] = now + MISSED_KEY_SECONDS
        if len(self._missed) > MISSED_KEYS_MAX:
            del self._missed[next(iter(self._missed))]
        self._wanted.set()

    async def fetch(self) -> None:
        """Fetch the keys. Raises OSError, ValueError; the keys are then as before."""
        self._keys = parse_keys(await read_beside_the_loop(self._url, self._tls))
        for key in self._keys:
            self._missed.pop(str(key.get("kid")), None)

    async def run(self) -> None:
        """Fetch the keys from time to time, and when one is missed, until cancelled."""
        while True:
            with real_time.move_on_after(self._times.refresh_ms / 1000):
                await self._wanted.wait()
            self._wanted = trio.Event()
            await self._refresh()

    async def _refresh(self) -> None:
        """Fetch the keys; after a failure try again, until ``backoff_max_ms`` have passed."""
        pause_ms = self._times.backoff_ms
        end = real_time.monotonic() + self._times.backoff_max_ms / 1000
        while True:
            try:
                await self.fetch()
            except (OSError, ValueError) as error:
                left = end - real_time.monotonic()
                if left <= 0:
                    log.warning("keys of tokens not fetched", url=self._url, error=str(error))
                    return
                await real_time.sleep(min(pause_ms / 1000, left))
                pause_ms *= 2
            else:
                return
