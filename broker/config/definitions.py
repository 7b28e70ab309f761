"""`ConfigKey`: the type, default, limits and documentation of a configuration key, and the parser of its text.

A class declares keys as attributes (see `definitions_log.py`); the type checker, the parser, DescribeConfigs and the
documentation use the same declaration. The attribute's name is the key's with ``_`` for ``.``. Meanings, types,
defaults and error messages are those of ``org.apache.kafka.common.config.ConfigDef`` and ``KafkaConfig`` of Kafka
4.4.0."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
# A key's parsed value. None: the key has no default and is not set.
Value = bool | int | float | str | tuple[str, ...] | None


class StartError(Exception):
    """Why a broker or a proxy cannot start: a setting, an address, a data directory or a cluster that cannot be used.
    The message is for the user, and names it.
    """


class ConfigError(StartError):
    """The configuration is invalid. Each of ``problems`` is one line with the key, the value and the reason, in Kafka's
    words."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ConfigType(IntEnum):
    """The type of a key's value, as DescribeConfigs returns it (``DescribeConfigsResponse.ConfigType``)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = ConfigType
HIGH, MEDIUM, LOW = "high", "medium", "low"


class UpdateMode(IntEnum):
    """Whether a broker key may change while the broker runs, and for which brokers (Kafka: ``DynamicBrokerConfig``)."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


READ_ONLY, PER_BROKER, CLUSTER_WIDE = UpdateMode

# All defaults that differ from Kafka's, with the reason. A test compares docs/reference/differences.md with this table.
OUR_DEFAULTS: dict[str, tuple[Value, str]] = {
    "controller.listener.names": (("CONTROLLER",), "required by Kafka; there is no controller to reach here"),
    "group.initial.rebalance.delay.ms": (0, "a test's first consumer should not wait three seconds"),
    "listeners": (("PLAINTEXT://127.0.0.1:9092",), "reachable from this machine only, until told otherwise"),
    "node.id": (1, "required by Kafka; one node needs no choice"),
    "process.roles": (("broker", "controller"), "required by Kafka; one process does both"),
    "socket.receive.buffer.bytes": (-1, "the kernel sizes the buffer by need: several times the throughput"),
    "socket.send.buffer.bytes": (-1, "the kernel sizes the buffer by need: several times the throughput"),
}

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_BITS = {SHORT: 16, INT: 32, LONG: 64}
_SECRET_WORDS = ("password", "passphrase", "secret", "jaas", "keystore.key")


class ConfigKey:
    """One configuration key. The class that declares it sets ``name`` and ``attribute``.

    A key that is not ``in_effect`` does nothing in oncelog: it is parsed and shown, and setting it gives a warning.
    One that is ``of_proxies`` has its effect in a proxy, too, and one that is ``of_several_nodes`` only where there are
    several.
    ``default`` is oncelog's and ``kafka_default`` Kafka's; they differ for `OUR_DEFAULTS` only. ``synonyms`` (of topic
    and group keys) are broker keys that give the default, each with a factor that converts its unit; the first one that
    is set wins (``ServerTopicConfigSynonyms``)."""

    __slots__ = (
        "at_least",
        "at_most",
        "attribute",
        "check",
        "choices",
        "default",
        "documentation",
        "importance",
        "in_effect",
        "internal",
        "kafka_default",
        "name",
        "of_proxies",
        "of_several_nodes",
        "synonyms",
        "type",
        "update_mode",
    )

    def __init__(
        self,
        type: ConfigType,
        default: Value,
        documentation: str,
        importance: str,
        update_mode: UpdateMode,
        at_least: float | None,
        at_most: float | None,
        choices: tuple[str, ...],
        check: Callable[[str, Any], None] | None,
        synonyms: tuple[tuple[str, int], ...],
        internal: bool,
        in_effect: bool,
        of_proxies: bool | None = False,
        of_several_nodes: bool = False,
    ) -> None:
        self.name = self.attribute = ""
        self.type = type
        self.default = self.kafka_default = default
        self.documentation = documentation
        self.importance = importance
        self.update_mode = update_mode
        self.at_least = at_least
        self.at_most = at_most
        self.choices = choices
        self.check = check
        self.synonyms = synonyms
        self.internal = internal
        self.in_effect = in_effect
        self.of_proxies = of_proxies
        self.of_several_nodes = of_several_nodes

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is PASSWORD

    def parse(self, text: str) -> Value:
        """Return the value of a text. Raises ConfigError, in Kafka's words, if it is malformed or out of range."""
        value = _PARSERS[self.type](self, text.strip(_JAVA_BLANKS), text)
        self.validate(value)
        return value

    def validate(self, value: Any) -> None:
        """Raise ConfigError if the key may not have this value, which is of its type."""
        if self.choices:
            for word in value if self.type is LIST else (value,):
                if self.type is LIST and not word:
                    raise ConfigError(f"Configuration '{self.name}' values must not be empty.")
                if word not in self.choices:
                    raise self.refusal(word, "String must be one of: " + ", ".join(self.choices))
        if self.at_least is not None and value < self.at_least:
            raise self.refusal(self.to_text(value), f"Value must be at least {self.at_least}")
        if self.at_most is not None and value > self.at_most:
            raise self.refusal(self.to_text(value), f"Value must be no more than {self.at_most}")
        if self.check is not None:
            self.check(self.name, value)

    def refusal(self, value: object, why: str) -> ConfigError:
        """Return the error for an invalid value, with the message of Kafka's ``ConfigException``."""
        shown = "[hidden]" if self.sensitive else value
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {why}")

    def to_text(self, value: Value) -> str | None:
        """Return the value as Kafka writes it (``ConfigDef.convertToString``), None for a null."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return _java_double(value) if isinstance(value, float) else str(value)


def key(
    type: ConfigType,
    default: T,
    documentation: str,
    *,
    importance: str = MEDIUM,
    update: UpdateMode = READ_ONLY,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[str, Any], None] | None = None,
    synonyms: tuple[tuple[str, int], ...] = (),
    internal: bool = False,
    in_effect: bool = True,
    of_proxies: bool | None = None,
    of_several_nodes: bool = False,
) -> T:
    """Declare a key. It returns a `ConfigKey`, but has the type of the key's value: reading the attribute of an
    instance gives the value (as the field specifiers of `oncelog.wire.schema` do)."""
    config_key: Any = ConfigKey(
        type,
        default,  # type: ignore[arg-type]
        documentation,
        importance,
        update,
        at_least,
        at_most,
        choices,
        check,
        synonyms,
        internal,
        in_effect,
        of_proxies,
        of_several_nodes,
    )
    return config_key  # type: ignore[no-any-return]


class KeyCollector(type):
    """The metaclass of classes that declare keys. It collects them in ``KEYS``, by name, in the order of declaration.

    With ``with_values=True`` the instances of the class hold the values of all keys, those of base classes included, in
    slots. With ``in_effect=False`` none of the class's keys has an effect yet: setting one gives a warning. With
    ``of_proxies=True`` its keys are `ConfigKey.of_proxies`, but for those that say otherwise; with
    ``of_several_nodes=True`` they are `ConfigKey.of_several_nodes`."""

    KEYS: Mapping[str, ConfigKey]

    def __new__(
        meta,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        with_values: bool = False,
        in_effect: bool = True,
        of_proxies: bool = False,
        of_several_nodes: bool = False,
    ) -> KeyCollector:
        keys: dict[str, ConfigKey] = {}
        for base in bases:
            keys.update(getattr(base, "KEYS", {}))
        for attribute, config_key in list(namespace.items()):
            if isinstance(config_key, ConfigKey):
                del namespace[attribute]
                _bind(config_key, attribute, in_effect)
                if config_key.of_proxies is None:
                    config_key.of_proxies = of_proxies
                config_key.of_several_nodes |= of_several_nodes
                keys[config_key.name] = config_key
        namespace["KEYS"] = keys
        more = namespace.get("__slots__", ())
        namespace["__slots__"] = (
            (*more, *(config_key.attribute for config_key in keys.values())) if with_values else more
        )
        return super().__new__(meta, name, bases, namespace)


def _bind(config_key: ConfigKey, attribute: str, in_effect: bool) -> None:
    config_key.attribute = attribute
    config_key.name = attribute.replace("_", ".")
    config_key.in_effect &= in_effect
    if config_key.name in OUR_DEFAULTS:
        config_key.default = OUR_DEFAULTS[config_key.name][0]


def is_secret(name: str) -> bool:
    """Whether the value of a key, perhaps an unknown one, looks like a secret, so that messages must not show it."""
    return any(word in name for word in _SECRET_WORDS)


def between_or(low: int, high: int, also: int) -> Callable[[str, int], None]:
    """Return a check for a range and one value outside it (``CompressionType.GZIP.levelValidator``)."""

    def check(name: str, value: int) -> None:
        if not low <= value <= high and value != also:
            raise ConfigError(
                f"Invalid value {value} for configuration {name}: "
                f"Value must be between {low} and {high} or equal to {also}"
            )

    return check


def no_empty_items(name: str, words: tuple[str, ...]) -> None:
    """Check that no item of a list is empty (``ConfigDef.ValidList.anyNonDuplicateValues``). Raises ConfigError."""
    if "" in words:
        raise ConfigError(f"Configuration '{name}' values must not be empty.")


def case_insensitive_choice(words: tuple[str, ...]) -> Callable[[str, str], None]:
    """Return a check for one of ``words`` in any case (``ConfigDef.CaseInsensitiveValidString``)."""

    def check(name: str, value: str) -> None:
        if value.lower() not in words:
            choices = ", ".join(word.upper() for word in words)
            raise ConfigError(
                f"Invalid value {value} for configuration {name}: "
                f"String must be one of (case insensitive): {choices}"
            )

    return check


def _boolean(config_key: ConfigKey, stripped: str, text: str) -> bool:
    word = stripped.lower()
    if word not in ("true", "false"):
        raise config_key.refusal(text, "Expected value to be either true or false")
    return word == "true"


def _integer(config_key: ConfigKey, stripped: str, text: str) -> int:
    digits = stripped[1:] if stripped[:1] in ("+", "-") else stripped
    limit = 1 << (_BITS[config_key.type] - 1)
    # As Java's Integer.parseInt: no underscores, no blanks inside. A text with more digits than a long is not
    # converted, which would take long.
    if not digits.isdecimal() or len(digits.lstrip("0")) > 19 or not -limit <= int(stripped) < limit:
        raise config_key.refusal(text, f"Not a number of type {config_key.type.name}")
    return int(stripped)


def _double(config_key: ConfigKey, stripped: str, text: str) -> float:
    number = stripped[:-1] if stripped[-1:] in ("d", "D", "f", "F") else stripped
    letters = number.lstrip("+-")
    try:
        if "_" in number or (letters[:1].isalpha() and letters not in ("NaN", "Infinity")):
            raise ValueError
        return float(number)
    except ValueError:
        raise config_key.refusal(text, "Not a number of type DOUBLE") from None


def _string(config_key: ConfigKey, stripped: str, text: str) -> str:
    return stripped


def _list(config_key: ConfigKey, stripped: str, text: str) -> tuple[str, ...]:
    if not stripped:
        return ()
    words = [word.strip() for word in stripped.split(",")]
    return tuple(dict.fromkeys(words)) if config_key.choices else tuple(words)


_PARSERS: dict[ConfigType, Callable[[ConfigKey, str, str], Value]] = {
    BOOLEAN: _boolean,
    STRING: _string,
    INT: _integer,
    SHORT: _integer,
    LONG: _integer,
    DOUBLE: _double,
    LIST: _list,
    CLASS: _string,
    PASSWORD: _string,
}


def _java_double(value: float) -> str:
    """Return the text that Java's ``Double.toString`` returns."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits = 1
    while float(f"{value:.{digits}e}") != value:
        digits += 1
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}E{int(exponent)}"
