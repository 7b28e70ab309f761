"""`ProxyConfig`: a configuration in which nobody may read a key that is declared as without effect on a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.broker.config.broker_config import BrokerConfig

_NOT_OF_PROXIES = {key.attribute: name for name, key in BrokerConfig.KEYS.items() if not key.of_proxies}


class ProxyConfig(BrokerConfig):
    """What a test gives to a proxy: a key that the proxy reads, and that users may not set there, is an error."""

    __slots__ = ("_is_made",)

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        super().__init__(texts)
        object.__setattr__(self, "_is_made", True)

    def __getattribute__(self, name: str) -> Any:
        if name in _NOT_OF_PROXIES:
            try:
                super().__getattribute__("_is_made")
            except AttributeError:  # values are still checked against each other
                pass
            else:
                raise AssertionError(
                    f"a proxy reads {_NOT_OF_PROXIES[name]}: declare it with of_proxies=True"
                )
        return super().__getattribute__(name)
