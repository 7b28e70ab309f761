"""Which settings have an effect on a proxy. Kafka's keys say so where they are declared (`ConfigKey.of_proxies`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncelog.broker.client.security import keys as client_keys
from oncelog.broker.config.broker_config import BrokerConfig, is_known
from oncelog.broker.config.definitions_known import AUTHORIZER_KEYS, LISTENER_PREFIX, listener_base
from oncelog.broker.config.listeners import PLAINTEXT, ListenerConfig

MAX_REAUTH = "connections.max.reauth.ms"
OF_CLIENTS = (
    "it is a key of clients: for the proxy's connections to the cluster, put it into the file of --upstream-config "
    "(in a program, upstream_config=)"
)
OF_BROKERS = "it is for the cluster's brokers; a proxy uses the keys of listeners, log-ins, rights and quotas"


def has_own_access(config: BrokerConfig, protocols: Iterable[str], *, pass_through: bool) -> bool:
    """Return whether a proxy with listeners of these protocols has users, ACLs, quotas and tokens of its own: otherwise
    upstream's are in force.

    pass_through: whether log-ins pass through.
    """
    if config.authorizer_class_name:
        return True
    return not pass_through and any(protocol != PLAINTEXT for protocol in protocols)


def without_effect(
    config: BrokerConfig, names: Iterable[str], listeners: Sequence[ListenerConfig], *, pass_through: bool
) -> dict[str, str]:
    """Return a line for each of these keys that has no effect on a proxy with this configuration and these listeners.

    pass_through: whether log-ins pass through.
    """
    own = [row.bind.listener for row in listeners]
    found = {}
    for name in names:
        why = _why(config, name, own, pass_through=pass_through)
        if why:
            found[name] = f"{name} has no effect on a proxy: {why}"
    return found


def _why(config: BrokerConfig, name: str, listeners: Sequence[str], *, pass_through: bool) -> str | None:
    """Return why a key has no effect, None if it has one."""
    if pass_through and _is_of_logins(name):
        return "log-ins pass through it"
    if not is_known(name):
        return None  # that is another error
    if config.has_effect(name, on_proxy=True):
        if name.startswith(LISTENER_PREFIX):
            listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0].upper()
            if listener and listener not in listeners:
                return f"it has no listener {listener}; there are {', '.join(listeners)}"
        return None
    if name in AUTHORIZER_KEYS:
        return "there are no ACLs without authorizer.class.name"
    return OF_CLIENTS if (listener_base(name) or name) in client_keys.USED else OF_BROKERS


def _is_of_logins(name: str) -> bool:
    """Whether a key, perhaps one listener's, is about log-ins only."""
    base = listener_base(name)
    if base is None:
        base = name
    return "sasl." in base or base.startswith("delegation.token.") or base.endswith(MAX_REAUTH)
