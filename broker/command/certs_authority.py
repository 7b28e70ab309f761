"""`AuthorityFiles`: where ``oncelog certs`` keeps an authority, and the one that is kept there."""

from __future__ import annotations

import os

from oncelog.broker.security.tls.authority import (
    DAYS,
    Certificate,
    DevelopmentAuthority,
    Validity,
    usual_validity,
)

KEPT_DAYS = 3650
"""For how many days an authority is valid that later runs use."""


class AuthorityError(Exception):
    """The authority cannot be used, or cannot be kept where it should be."""


class AuthorityFiles:
    """``ca``: the file of the certificate, which has the key, too, unless that is in ``ca_key``; None keeps neither.
    ``for_clients``: the path of the certificate that clients are given.
    """

    def __init__(self, ca: str | None, ca_key: str | None, for_clients: str) -> None:
        self._ca = None if ca is None else os.path.abspath(ca)
        self._key = None if ca_key is None else os.path.abspath(ca_key)
        self.is_in_directory = self._ca == for_clients
        """Whether the clients' file is the one that keeps the certificate."""

    def authority(self, now_ms: int, validity: Validity) -> tuple[DevelopmentAuthority, bool]:
        """Return the authority, and whether it is new. A new one is valid at least as long as what it is to sign.

        Raises AuthorityError.
        """
        ca, key = self._ca, self._key
        if ca is not None:
            if key is None and self.is_in_directory:
                raise AuthorityError(
                    f"{ca} is what clients are given, and must not have the authority's key: keep it elsewhere, or "
                    "add --ca-key FILE"
                )
            there = [path for path in (ca, key) if path is not None and os.path.lexists(path)]
            missing = [path for path in (ca, key) if path is not None and path not in there]
            if there and missing:
                raise AuthorityError(f"{there[0]} is there, but {missing[0]} is not: both make the authority")
            if there:
                return _kept(ca, key or ca, now_ms), False
        usual = usual_validity(now_ms, KEPT_DAYS if ca is not None else DAYS)
        longest = Validity(min(usual.begin, validity.begin), max(usual.end, validity.end))
        return DevelopmentAuthority(now_ms, validity=longest), True

    def contents(self, authority: DevelopmentAuthority) -> dict[str, bytes]:
        """Return what to write to keep a new authority, by path."""
        if self._ca is None:
            return {}
        if self._key is None:
            return {self._ca: authority.key + authority.pem}
        return {self._ca: authority.pem, self._key: authority.key}


def _kept(ca: str, key: str, now_ms: int) -> DevelopmentAuthority:
    try:
        return DevelopmentAuthority(now_ms, Certificate(_read(key), _read(ca)))
    except ValueError as error:
        where = ca if key == ca else f"{ca} and {key}"
        raise AuthorityError(f"the authority in {where} cannot be used: {error}") from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise AuthorityError(f"cannot read {path}: {error.strerror}") from None
