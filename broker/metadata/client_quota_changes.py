"""Changes of client quotas: what AlterClientQuotas asks for, checked, as records; what DescribeClientQuotas selects.

Source: Kafka's ``ClientQuotaControlManager``, ``ClientQuotasImage.describe``, ``QuotaConfig``; KIP-546.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from oncelog.broker.metadata.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    quota_record,
)
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from oncelog.broker.metadata.client_quotas import ClientQuotasImage, Entity
    from oncelog.wire.messages.describe_client_quotas import ComponentData
    from oncelog.wire.schema import Message
    from oncelog.wire.steps import Steps

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""Match types of a filter: this name, the default, any name."""
RECORDS_MAX = 10_000
"""How many values one request may change (``QuorumController.MAX_RECORDS_PER_USER_OP``)."""
_LONG, _INT = ("LONG", float(2**63)), ("INT", float(2**31 - 1))
_USER_AND_CLIENT_KEYS: dict[str, tuple[str, float] | None] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""By key: the type of whole numbers and its largest value; None: any number."""
_IP_KEYS: dict[str, tuple[str, float] | None] = {CONNECTION_CREATION_RATE: _INT}

Alteration = tuple["Entity", list[tuple[str, float | None]]]
"""An entity, and new values by key; None removes the value."""


def alter(
    image: ClientQuotasImage,
    alterations: Iterable[Alteration],
    address: Callable[[str], str | None],
) -> Steps[tuple[list[Message], dict[Entity, KafkaError | None]]]:
    """Return the records of those alterations that are valid, and for each entity its error, or None, after a step for
    each. ``address`` returns that of a host, None if it has none. Another change between the steps does no harm: a
    record sets a value, or removes one that may be gone.

    Raises KafkaError: POLICY_VIOLATION if they are too many.
    """
    records: list[Message] = []
    results: dict[Entity, KafkaError | None] = {}
    for entity, ops in alterations:
        yield
        if entity in results or len({key for key, _ in ops}) < len(ops):
            results[entity] = _invalid(f"Ignoring duplicate entity {_text(entity)}")
            continue
        try:
            records += _changes(image, entity, ops, address)
            results[entity] = None
        except KafkaError as error:
            results[entity] = error
    if len(records) > RECORDS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    return records, results


def _changes(
    image: ClientQuotasImage,
    entity: Entity,
    ops: Sequence[tuple[str, float | None]],
    address: Callable[[str], str | None],
) -> list[Message]:
    keys = _keys_of(entity, address)
    current = image.entities.get(entity, {})
    records: list[Message] = []
    for key, value in ops:
        if value is not None:
            _check_value(keys, key, value)
        if value != current.get(key):
            records.append(quota_record(entity, key, value))
    return records


def _keys_of(entity: Entity, address: Callable[[str], str | None]) -> dict[str, tuple[str, float] | None]:
    """Return the keys that an entity may have. Raises KafkaError (INVALID_REQUEST) if there are no such entities."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for entity_type, name in entity:
        if entity_type not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise _invalid(f"Empty {entity_type} not supported")
    names = dict(entity)
    if IP not in names:
        return _USER_AND_CLIENT_KEYS
    if len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    host = names[IP]
    if host is not None and address(host) is None:
        raise _invalid(f"{names[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _check_value(keys: dict[str, tuple[str, float] | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0.0:
        raise _invalid(f"Quota {key} must be greater than 0")
    limit = keys[key]
    if limit is None:
        return
    name, largest = limit
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for a{'n' if name == 'INT' else ''} {name}.")
    if abs(value % 1.0) > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value.")


def _text(entity: Entity) -> str:
    """Return the entity as Kafka's ``ClientQuotaEntity`` writes it."""
    names = ", ".join(f"{entity_type}={'null' if name is None else name}" for entity_type, name in entity)
    return f"ClientQuotaEntity(entries={{{names}}})"


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def filter_of(components: Sequence[ComponentData], *, strict: bool) -> Callable[[Entity], bool]:
    """Return whether an entity matches all components of a filter; with ``strict``, and has no other type.

    Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION.
    """
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        _check_component(component, exact.keys() | specified)
        if component.match_type == SPECIFIED:
            specified.add(component.entity_type)
        else:
            exact[component.entity_type] = component.match
    types = exact.keys() | specified
    if IP in types and len(types) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )

    def matches(entity: Entity) -> bool:
        names = dict(entity)
        return (
            types <= names.keys()
            and not (strict and len(names) > len(types))
            and all(names[entity_type] == name for entity_type, name in exact.items())
        )

    return matches


def _check_component(component: ComponentData, seen: set[str]) -> None:
    entity_type = component.entity_type
    if not entity_type:
        raise _invalid("Invalid empty entity type.")
    if entity_type in seen:
        raise _invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
    if entity_type not in (USER, CLIENT_ID, IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
    if component.match_type == EXACT:
        if component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif component.match_type not in (DEFAULT, SPECIFIED):
        raise _invalid(f"Unknown match type {component.match_type}")
    elif component.match is not None:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise _invalid(f"Request specified {name}, but also specified a match string.")
