"""How each client is given its tokens (OAUTHBEARER): by a function, by an object of a class of its own, in a file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelog.broker.control.errors import InvalidArgumentError, UnsupportedError
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from oncelog.broker.embedded.tokens import Token

KEPT_S = 60
"""Seconds for which librdkafka shows a token whose time is over."""
KAFKA_PYTHON_MODULES = ("kafka.net.sasl.oauth", "kafka.sasl.oauth", "kafka.oauth")
"""Modules with kafka-python's class for token providers, in its releases from the newest."""


def confluent_callback(new_token: Callable[[], Token]) -> Callable[[str], tuple[str, float]]:
    """Return the ``oauth_cb`` of confluent-kafka."""

    def oauth_cb(_: str) -> tuple[str, float]:
        token = new_token()
        # librdkafka itself refuses a token whose time is over; here the broker is to do so.
        return token.text, max(token.ends_at, real_time.now_ms() / 1000 + KEPT_S)

    return oauth_cb


def kafka_python_provider(new_token: Callable[[], Token]) -> Any:
    """Return the ``sasl_oauth_token_provider`` of kafka-python. Raises UnsupportedError without the package."""
    base = _first_class("kafka-python", KAFKA_PYTHON_MODULES)

    class Provider(base):  # type: ignore[misc,valid-type]
        def token(self) -> str:
            return new_token().text

    return Provider()


def aiokafka_provider(new_token: Callable[[], Token]) -> Any:
    """Return the ``sasl_oauth_token_provider`` of aiokafka. Raises UnsupportedError without the package."""
    base = _first_class("aiokafka", ("aiokafka.abc",))

    class Provider(base):  # type: ignore[misc,valid-type]
        async def token(self) -> str:
            return new_token().text

    return Provider()


def token_file(path: str | os.PathLike[str], token: Token) -> str:
    """Write a token to a file that only its owner can read; return the file's URL. Raises InvalidArgumentError."""
    target = Path(path).absolute()
    try:
        target.touch(0o600)
        target.write_text(token.text)
    except OSError as error:
        raise InvalidArgumentError(f"token_file={str(path)!r}: {error.strerror}") from None
    return target.as_uri()


def _first_class(package: str, modules: tuple[str, ...]) -> Any:
    for module in modules:
        try:
            return import_module(module).AbstractTokenProvider
        except ModuleNotFoundError:
            continue
    raise UnsupportedError(f"client_config({package!r}, token=...) needs {package}: pip install {package}")
