"""`ClientQuotasImage`: the quotas of clients, users and addresses, as the records of the metadata log make them.

An entity has a name for each of its types; None is the default of the type. Source: Kafka's ``ClientQuotasImage``,
``ClientQuotaImage``; KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncelog.wire.stored.metadata import ClientQuotaRecord, EntityData

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (CLIENT_ID, USER, IP)
"""Types of entities, in the order in which Kafka's hash tables have them."""
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
KEYS = (
    REQUEST_PERCENTAGE,
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    CONNECTION_CREATION_RATE,
)
"""All keys, in that order, too."""

Entity = tuple[tuple[str, str | None], ...]
"""Types with names, in the order of `TYPES`."""


def entity_of(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity with these names. If a type occurs twice, its last name counts."""
    names = dict(pairs)
    return tuple((entity_type, names[entity_type]) for entity_type in sorted(names, key=_place))


def entity_of_record(record: ClientQuotaRecord) -> Entity:
    return entity_of((one.entity_type, one.entity_name) for one in record.entity)


def _place(entity_type: str) -> tuple[int, str]:
    return TYPES.index(entity_type) if entity_type in TYPES else len(TYPES), entity_type


class ClientQuotasImage:
    """All quotas: values by key, by entity. It changes only in `replay`."""

    __slots__ = ("clients", "entities")

    def __init__(self) -> None:
        self.entities: dict[Entity, dict[str, float]] = {}
        self.clients = 0
        """How many of the entities are users and clients, not addresses."""

    def replay(self, record: ClientQuotaRecord) -> None:
        """Set or remove one value."""
        entity = entity_of_record(record)
        before = len(self.entities)
        values = self.entities.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
            if not values:
                del self.entities[entity]
        else:
            values[record.key] = record.value
        if all(entity_type != IP for entity_type, _ in entity):
            self.clients += len(self.entities) - before

    def records(self) -> Iterator[ClientQuotaRecord]:
        """Yield the records that make this image."""
        for entity, values in self.entities.items():
            for key, value in values.items():
                yield quota_record(entity, key, value)


def quota_record(entity: Entity, key: str, value: float | None) -> ClientQuotaRecord:
    """Return the record that sets a value, or for None removes it."""
    return ClientQuotaRecord(
        [EntityData(entity_type, name) for entity_type, name in entity],
        key,
        0.0 if value is None else value,
        value is None,
    )
