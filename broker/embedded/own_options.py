"""`OwnOptions`: what a broker and a proxy both make of their arguments."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Self

from oncelog.broker.control.options import BrokerOptions, checked_options
from oncelog.broker.embedded.certificates import BrokerCertificate, Certificates
from oncelog.broker.embedded.tokens import TokenIssuer


class OwnOptions(NamedTuple):
    """The checked options, and what clients need for them."""

    options: BrokerOptions
    certificates: Certificates | None
    tokens: TokenIssuer | None

    @classmethod
    def of(
        cls,
        *,
        data_dir: str | os.PathLike[str] | None,
        seed: int | None,
        tls: bool | BrokerCertificate,
        oauth: bool,
        **others: Any,
    ) -> Self:
        """Return those of the arguments of `oncelog.Broker` or `oncelog.Proxy`; ``others`` are for `checked_options`.
        Raises InvalidArgumentError, and UnsupportedError without the extra for TLS.
        """
        certificates = Certificates(tls) if tls else None
        tokens = TokenIssuer(oauth) if oauth else None
        options = checked_options(
            data_dir=None if data_dir is None else os.path.abspath(data_dir),
            seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
            tls=None if certificates is None else certificates.broker_config(),
            oauth=None if tokens is None else tokens.broker_config(),
            **others,
        )
        return cls(options, certificates, tokens)
