"""AlterConfigs and IncrementalAlterConfigs: the records that change a resource's configuration, or why it is refused.

A resource changes as a whole or not at all; a refused one does not affect the others. Source: the checks of Kafka's
broker (``ConfigAdminManager``, ``DynamicBrokerConfig``) and then of its controller (``ConfigurationControlManager``,
``ControllerConfigurationValidator``); KIP-226, KIP-339.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.client_metrics_config import ClientMetricsConfig, parse_subscription
from oncelog.broker.config.definitions import LIST, ConfigError, UpdateMode
from oncelog.broker.config.definitions_security import PER_LISTENER_KEYS
from oncelog.broker.config.group_config import GroupConfig, parse_group_overrides
from oncelog.broker.config.topic_config import TopicConfig, parse_topic_overrides
from oncelog.broker.metadata.configs import (
    VALUE_CHARS_MAX,
    broker_keys,
    dynamic_broker_texts,
    dynamic_key,
    dynamic_texts,
    is_dynamic,
    parse_node_id,
    value_too_long,
)
from oncelog.broker.metadata.features import MIN_INSYNC_REPLICAS
from oncelog.broker.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from oncelog.broker.metadata.logger_levels import check_loggers, set_loggers
from oncelog.broker.metadata.store import cordon_record
from oncelog.broker.metadata.topics import check_name, check_record_count
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import ClearElrRecord, ConfigRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from oncelog.broker.config.definitions import ConfigKey
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.wire.schema import Message

CORDONED_LOG_DIRS = "cordoned.log.dirs"
KEYS_PER_RESOURCE_MAX = 1_000
"""Keys of one resource that a request may change: more than there are."""

R = TypeVar("R")

# Operations of IncrementalAlterConfigs (``AlterConfigOp.OpType``).
SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATION_NAMES = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


Refusal = Callable[[int, str], "KafkaError | None"]
"""Tells why a resource, its type and name, may not be changed; None: it may."""


class ConfigChange(NamedTuple):
    """The change of one key: the operation, and its value in the request."""

    name: str
    operation: int
    value: str | None


class AlteredResource(NamedTuple):
    """A resource to alter. ``replaces``: remove all keys that are not among ``changes`` (AlterConfigs). ``asked``: the
    node that a client has asked, and that has forwarded it; None: this one.
    """

    resource_type: int
    name: str
    changes: Sequence[ConfigChange]
    replaces: bool = False
    asked: int | None = None


def alter(
    store: ClusterMetadata,
    config: DynamicBrokerConfig,
    resources: Iterable[AlteredResource],
    rows: list[R],
    make_row: Callable[[int, str | None, int, str], R],
    *,
    validate_only: bool,
    refusal: Refusal | None = None,
) -> Iterator[None]:
    """Change the configuration of each resource, in steps. The last steps append a row for each to ``rows``, in order.

    All changes that are not refused are committed as one batch, in the step before those. ``make_row`` makes a row of
    error code and message (0 and None without an error), the resource's type and its name. ``refusal`` tells why the
    client may not change a resource.
    """
    asked: list[AlteredResource] = []
    seen: dict[tuple[int, str], int] = {}
    for resource in resources:
        asked.append(resource)
        seen[resource[:2]] = seen.get(resource[:2], 0) + 1
        yield
    outcomes: list[list[Message] | KafkaError] = []
    began = store.image.offset
    count = 0
    for resource in asked:
        if seen[resource[:2]] > 1:
            outcomes.append(_invalid_request("Each resource must appear at most once."))
        else:
            outcomes.append(_records_or_refusal(store.image, config, resource, count, refusal))
            count += _count(outcomes[-1])
        yield
    if store.image.offset != began:
        # The metadata changed between the steps: a change may be refused now, or need other records.
        count = 0
        for at, resource in enumerate(asked):
            if _count(outcomes[at]):
                outcomes[at] = _records_or_refusal(store.image, config, resource, count, refusal)
                count += _count(outcomes[at])
    failed = None if validate_only else _commit(store, config, outcomes)
    if not validate_only:
        for resource, outcome in zip(asked, outcomes, strict=True):
            if resource.resource_type == BROKER_LOGGER and not isinstance(outcome, KafkaError):
                set_loggers(resource.changes)
    for resource, outcome in zip(asked, outcomes, strict=True):
        error = outcome if isinstance(outcome, KafkaError) else failed
        code, message = (0, None) if error is None else (error.code, error.message)
        rows.append(make_row(code, message, resource.resource_type, resource.name))
        yield


def _records_or_refusal(
    image: MetadataImage,
    config: DynamicBrokerConfig,
    resource: AlteredResource,
    count: int,
    refusal: Refusal | None,
) -> list[Message] | KafkaError:
    """``count`` is the number of records for the resources before this one."""
    try:
        made = _alter(image, config, resource, refusal)
        check_record_count(count + len(made))
    except KafkaError as error:
        return error
    return made


def _count(outcome: list[Message] | KafkaError) -> int:
    return 0 if isinstance(outcome, KafkaError) else len(outcome)


def _commit(
    store: ClusterMetadata, config: DynamicBrokerConfig, outcomes: Iterable[list[Message] | KafkaError]
) -> KafkaError | None:
    records = [record for outcome in outcomes if not isinstance(outcome, KafkaError) for record in outcome]
    try:
        store.commit(records + _elr_cleared(store.image, records) + _cordoned(store.image, config, records))
    except KafkaError as error:
        return error
    return None


def _invalid_request(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _alter(
    image: MetadataImage, config: DynamicBrokerConfig, resource: AlteredResource, refusal: Refusal | None
) -> list[Message]:
    """Return the records for one resource. Raises KafkaError if it is refused."""
    changes = resource.changes
    if len(changes) > KEYS_PER_RESOURCE_MAX:
        text = f"The request changes more than {KEYS_PER_RESOURCE_MAX} keys of the resource."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
    if len({change.name for change in changes}) < len(changes):
        raise _invalid_request("Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if nulls:
        raise _invalid_request("Null value not supported for : " + ", ".join(nulls))
    if resource.resource_type == BROKER_LOGGER and resource.replaces:
        # AlterConfigs knows none, and asks no right for them.
        raise _invalid_request(f"Unknown resource type {BROKER_LOGGER}")
    denied = None if refusal is None else refusal(resource.resource_type, resource.name)
    if denied is not None:
        raise denied
    if resource.resource_type == BROKER_LOGGER:
        check_loggers(
            config.current.node_id if resource.asked is None else resource.asked, resource.name, changes
        )
        return []
    for change in changes:
        if change.operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise _invalid_request(f"Unknown operations type {change.operation}")
    if resource.resource_type == TOPIC:
        return _alter_topic(image, config, resource)
    if resource.resource_type == BROKER:
        return _alter_broker(image, config, resource)
    if resource.resource_type == GROUP:
        return _alter_group(image, config, resource)
    if resource.resource_type == CLIENT_METRICS:
        return _alter_client_metrics(image, resource)
    raise _invalid_request(f"Unknown resource type {resource.resource_type}")


def _alter_topic(
    image: MetadataImage, config: DynamicBrokerConfig, resource: AlteredResource
) -> list[Message]:
    _check_lists(resource, TopicConfig.KEYS)
    current = image.configs.get((TOPIC, resource.name), {})
    changed = _changed(resource, current, TopicConfig.KEYS)
    after = _after(current, changed)
    if not resource.name:
        raise _invalid_request("Default topic resources are not allowed.")
    check_name(resource.name)
    parse_topic_overrides(after, config.current.topic_defaults())
    if resource.name not in image.topics:
        text = f"The topic '{resource.name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return _effective_changes(resource, current, changed)


def _alter_group(
    image: MetadataImage, config: DynamicBrokerConfig, resource: AlteredResource
) -> list[Message]:
    """As `_alter_topic`, but the group need not exist."""
    _check_lists(resource, GroupConfig.KEYS)
    current = image.configs.get((GROUP, resource.name), {})
    changed = _changed(resource, current, GroupConfig.KEYS)
    if not resource.name:
        raise _invalid_request("Default group resources are not allowed.")
    parse_group_overrides(_after(current, changed), config.current)
    return _effective_changes(resource, current, changed)


def _alter_client_metrics(image: MetadataImage, resource: AlteredResource) -> list[Message]:
    """As `_alter_topic`, for a subscription to metrics of clients. Kafka lets nobody append to its lists."""
    _check_lists(resource, {})
    current = image.configs.get((CLIENT_METRICS, resource.name), {})
    changed = _changed(resource, current, ClientMetricsConfig.KEYS)
    parse_subscription(resource.name, _after(current, changed))
    return _effective_changes(resource, current, changed)


def _check_lists(resource: AlteredResource, keys: Mapping[str, ConfigKey]) -> None:
    """Raise KafkaError (INVALID_CONFIG) if a value that is no list is appended to or subtracted from."""
    for change in resource.changes:
        key = keys.get(change.name)
        if change.operation in _OPERATION_NAMES and (key is None or key.type is not LIST):
            operation = _OPERATION_NAMES[change.operation]
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {operation} to key {change.name} because its type is not LIST.",
            )


def _effective_changes(
    resource: AlteredResource, current: Mapping[str, str], changed: Mapping[str, str | None]
) -> list[Message]:
    """Return the records without those that set the current value again. A broker's are all written, to be applied anew
    (KAFKA-14136)."""
    return _records(resource, {name: text for name, text in changed.items() if current.get(name) != text})


def _alter_broker(
    image: MetadataImage, config: DynamicBrokerConfig, resource: AlteredResource
) -> list[Message]:
    """As `_alter_topic`."""
    if resource.name:
        _check_node_id(image, config.current, resource)
    for change in resource.changes:
        key = broker_keys().get(change.name)
        if change.operation in _OPERATION_NAMES and key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
        if change.operation in _OPERATION_NAMES and key is not None and key.type is not LIST:
            operation = _OPERATION_NAMES[change.operation].lower()
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Config value {operation} is not allowed for config key: {change.name}",
            )
    current = image.configs.get((BROKER, resource.name), {})
    changed = _changed(resource, current, broker_keys())
    after = _after(dynamic_texts(current), changed)
    _check_dynamic(after, resource.name)
    _check_min_insync_replicas(image, resource.name, changed)
    _check_values(image, config, resource.name, after)
    return _records(resource, changed)


def _check_node_id(image: MetadataImage, config: BrokerConfig, resource: AlteredResource) -> None:
    """Raise KafkaError (INVALID_REQUEST) for another broker than the one that was asked; a controller that is none
    changes those of all.
    """
    name, asked = resource.name, config.node_id if resource.asked is None else resource.asked
    node_id = parse_node_id(name)
    if node_id is None:
        raise _invalid_request(f"Node id must be an integer, but it is: {name}")
    if node_id != asked and (asked in image.brokers or node_id not in image.brokers):
        raise _invalid_request(f"Unexpected broker id, expected {asked}, but received {name}")


def _check_dynamic(after: Mapping[str, str], resource_name: str) -> None:
    """Raise KafkaError (INVALID_REQUEST) for keys that are not dynamic, and for keys of a single broker that are set
    for all brokers.
    """
    keys = {name: dynamic_key(name) for name in after}
    fixed = [name for name, key in keys.items() if key is None or not is_dynamic(key)]
    if fixed:
        raise _invalid_request(f"Cannot update these configs dynamically: {_listed(fixed)}")
    bare = [name for name in after if name in PER_LISTENER_KEYS]
    if bare:
        raise _invalid_request(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            + _listed(bare)
        )
    own = [name for name, key in keys.items() if key is not None and key.update_mode is UpdateMode.PER_BROKER]
    if own and not resource_name:
        raise _invalid_request(
            f"Cannot update these configs at default cluster level, broker id must be specified: {_listed(own)}"
        )


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(sorted(names))}]"


def _check_min_insync_replicas(
    image: MetadataImage, resource_name: str, changed: Mapping[str, str | None]
) -> None:
    """With ELR, raise KafkaError (INVALID_CONFIG) if a broker sets its own value or the cluster's is removed
    (KIP-966).
    """
    if MIN_INSYNC_REPLICAS not in changed or not image.elr_enabled:
        return
    if resource_name:
        text = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    if changed[MIN_INSYNC_REPLICAS] is None:
        text = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _check_values(
    image: MetadataImage, config: DynamicBrokerConfig, resource_name: str, after: Mapping[str, str]
) -> None:
    """Raise KafkaError (INVALID_REQUEST) if the broker's configuration would be invalid with ``after``."""
    configs = image.configs
    own_name = str(config.current.node_id)
    cluster = dynamic_texts(configs.get((BROKER, ""), {})) if resource_name else after
    own = after if resource_name else dynamic_texts(configs.get((BROKER, own_name), {}))
    try:
        for name, text in after.items():
            key = dynamic_key(name)
            assert key is not None, "it has passed `_check_dynamic`"
            key.parse(text)
        config.validate(BrokerConfig({**config.static.texts, **cluster, **own}))
    except ConfigError as error:
        raise _invalid_request(error.problems[0]) from None  # Kafka tells the first


def _changed(
    resource: AlteredResource, current: Mapping[str, str], keys: Mapping[str, ConfigKey]
) -> dict[str, str | None]:
    """Return the new text of every key in the request; None removes the key."""
    changed: dict[str, str | None] = {}
    for change in resource.changes:
        text = None if change.operation == DELETE else change.value
        if change.operation in _OPERATION_NAMES:
            key = keys[change.name]
            old = current.get(change.name)
            words = (old if old is not None else _kafka_default(key)).split(",")
            text = ",".join(_combined(change, [word for word in words if word]))
        if text is not None and len(text) > VALUE_CHARS_MAX:
            raise value_too_long()
        changed[change.name] = text
    if resource.replaces:
        changed.update((name, None) for name in current if name not in changed)
    return changed


def _kafka_default(key: ConfigKey) -> str:
    """Return the text that an unset list is appended to: the key's default, not the broker's configured value."""
    source = BrokerConfig.KEYS[key.synonyms[0][0]] if key.synonyms else key
    return source.to_text(source.kafka_default) or ""


def _combined(change: ConfigChange, words: list[str]) -> list[str]:
    for word in (change.value or "").split(","):
        if change.operation == APPEND:
            if word not in words:
                words.append(word)
        elif word in words:
            words.remove(word)
    return words


def _after(current: Mapping[str, str], changed: Mapping[str, str | None]) -> dict[str, str]:
    """Return the resource's texts after the changes."""
    merged = {**current, **changed}
    return {name: text for name, text in merged.items() if text is not None}


def _records(resource: AlteredResource, changed: Mapping[str, str | None]) -> list[Message]:
    return [ConfigRecord(resource.resource_type, resource.name, name, text) for name, text in changed.items()]


def _elr_cleared(image: MetadataImage, records: Iterable[Message]) -> list[Message]:
    """Return the records that clear eligible leader replicas after a change of ``min.insync.replicas``."""
    if not image.elr_enabled:
        return []
    return [
        ClearElrRecord(record.resource_name if record.resource_type == TOPIC else "")
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS
    ]


def _cordoned(image: MetadataImage, config: DynamicBrokerConfig, records: Iterable[Message]) -> list[Message]:
    """Return the record that takes this node's data directory out of use for new partitions, or back, after a change of
    ``cordoned.log.dirs``. Source: ``BrokerLifecycleManager.propagateDirectoryCordoned``.
    """
    node_id = config.static.node_id
    if node_id not in image.brokers:  # the controller of others, whose heartbeats tell it
        return []
    for record in records:
        if (
            isinstance(record, ConfigRecord)
            and record.name == CORDONED_LOG_DIRS
            and (record.resource_type, record.resource_name) == (BROKER, str(node_id))
        ):
            texts = dynamic_broker_texts(image, node_id)
            texts.pop(CORDONED_LOG_DIRS, None)
            if record.value is not None:
                texts[CORDONED_LOG_DIRS] = record.value
            changed = config.static.with_changes(texts)
            return [cordon_record(image.brokers[node_id], is_cordoned=changed.is_data_dir_cordoned)]
    return []
