"""`ClientLimits`: the quotas of one key, such as ``producer_byte_rate``, by user and client id, and their sensors.

Source: Kafka's ``ClientQuotaManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from oncelog.broker.metadata.client_quotas import CLIENT_ID, IP, USER, Entity

UNLIMITED = float(2**63 - 1)
"""The limit of a client without a quota."""
SWEEP_AT = 1000
"""Sensors beyond which idle ones are looked for, whenever their number has doubled."""

Tags = tuple[str, str | None]
"""User and client id of a sensor; empty where all of them share it."""

S = TypeVar("S")
K = TypeVar("K")


class ClientLimits(Generic[S]):
    """The limits by user and client id, and a sensor for each that is used. ``new_sensor`` makes one; one that was not
    used for ``idle_ms`` is as good as new.
    """

    def __init__(self, key: str, new_sensor: Callable[[], S], idle_ms: int) -> None:
        self._key = key
        self._idle_ms = idle_ms
        self._new_sensor = new_sensor
        self._users_clients: dict[tuple[str | None, str | None], float] = {}
        self._users: dict[str | None, float] = {}
        self._clients: dict[str | None, float] = {}
        self._sensors: dict[Tags, tuple[S, list[int]]] = {}
        self._sweep_at = SWEEP_AT

    def load(self, entities: Mapping[Entity, Mapping[str, float]]) -> None:
        """Take over these quotas in place of all earlier ones. The sensors stay."""
        self._users_clients, self._users, self._clients = {}, {}, {}
        for entity, values in entities.items():
            self.set(entity, values)

    def set(self, entity: Entity, values: Mapping[str, float]) -> None:
        """The entity has these quotas, and no other ones."""
        limit, names = values.get(self._key), dict(entity)
        if IP in names:
            return
        if USER in names and CLIENT_ID in names:
            _put(self._users_clients, (names[USER], names[CLIENT_ID]), limit)
        elif USER in names:
            _put(self._users, names[USER], limit)
        else:
            _put(self._clients, names[CLIENT_ID], limit)

    @property
    def is_enabled(self) -> bool:
        """Whether anybody has a quota of this kind."""
        return bool(self._users_clients or self._users or self._clients)

    def tags(self, user: str, client_id: str | None) -> Tags:
        """Return the tags of the client's sensor. Clients with the same tags share a quota."""
        both = (user, client_id)
        if not self._users_clients:
            if not self._users:
                return "", client_id
            if not self._clients:
                return user, ""
        elif not self._users and not self._clients:
            return both
        pairs, users = self._users_clients, self._users
        if both in pairs or (user, None) in pairs:
            return both
        if user in users:
            return user, ""
        if (None, client_id) in pairs or (None, None) in pairs:
            return both
        if None in users:
            return user, ""
        return "", client_id

    def limit(self, tags: Tags) -> float:
        """Return the limit for a sensor."""
        user, client_id = tags
        if client_id is None:
            return UNLIMITED
        if user and client_id:
            pairs = self._users_clients
            for entity in ((user, client_id), (user, None), (None, client_id), (None, None)):
                if entity in pairs:
                    return pairs[entity]
            return UNLIMITED
        by_name, name = (self._users, user) if user else (self._clients, client_id)
        if not name:
            return UNLIMITED
        return by_name[name] if name in by_name else by_name.get(None, UNLIMITED)

    def has_limit(self, user: str, client_id: str | None) -> bool:
        """Whether there is a limit for a client."""
        return self.is_enabled and self.limit(self.tags(user, client_id)) != UNLIMITED

    def find(self, user: str, client_id: str | None, now_ms: int) -> tuple[S, float]:
        """Return the sensor and the limit of a client."""
        tags = self.tags(user, client_id)
        found = self._sensors.get(tags)
        if found is None:
            if len(self._sensors) >= self._sweep_at:
                self._sweep(now_ms)
            found = self._sensors[tags] = (self._new_sensor(), [now_ms])
        found[1][0] = now_ms
        return found[0], self.limit(tags)

    def _sweep(self, now_ms: int) -> None:
        self._sensors = {
            tags: found for tags, found in self._sensors.items() if now_ms - found[1][0] < self._idle_ms
        }
        self._sweep_at = max(SWEEP_AT, 2 * len(self._sensors))


def _put(limits: dict[K, float], key: K, limit: float | None) -> None:
    if limit is None:
        limits.pop(key, None)
    else:
        limits[key] = limit
