"""The requirements of a topic's configuration on an appended batch, as `ValidationRules`."""

from __future__ import annotations

from functools import lru_cache

from oncelog.broker.config.topic_config import TopicConfig
from oncelog.wire.compression import CODECS
from oncelog.wire.validation_rules import ValidationRules

ZSTD_PRODUCE_VERSION = 7
"""The first version of Produce that may bring zstd."""


RULES_KEPT_MAX = 256
"""Different rules that are kept. Ten thousand partitions with the same configuration share one object, which
stays in the processor's caches."""


class AppendRules:
    """What a topic's configuration asks of batches, by where they come from."""

    __slots__ = ("_config", "_fast_readers", "_of_broker", "_without_zstd", "of_produce")

    def __init__(self, config: TopicConfig, *, fast_readers: bool) -> None:
        self._config = config
        self._fast_readers = fast_readers
        self.of_produce = rules_of(config, fast_readers=fast_readers)
        """For a Produce request that may bring zstd."""
        self._without_zstd: ValidationRules | None = None
        self._of_broker: ValidationRules | None = None

    def others(self, *, from_client: bool) -> ValidationRules:
        """For an older Produce request, or for what the broker itself writes."""
        if from_client:
            if self._without_zstd is None:
                self._without_zstd = rules_of(
                    self._config, zstd_allowed=False, fast_readers=self._fast_readers
                )
            return self._without_zstd
        if self._of_broker is None:
            self._of_broker = rules_of(self._config, from_client=False, fast_readers=self._fast_readers)
        return self._of_broker


def rules_of(
    config: TopicConfig, *, from_client: bool = True, zstd_allowed: bool = True, fast_readers: bool = True
) -> ValidationRules:
    """The rules for these settings. They are shared and must not be changed."""
    name = config.compression_type
    return _rules(
        compacted=config.compact,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        codec=None if name == "producer" else CODECS[name],
        level=_level(config, name),
        max_decompressed_message_bytes=config.max_decompressed_message_bytes,
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_size,
        from_client=from_client,
        zstd_allowed=zstd_allowed,
        fast_readers=fast_readers,
    )


_rules = lru_cache(RULES_KEPT_MAX)(ValidationRules)


def _level(config: TopicConfig, name: str) -> int | None:
    level: int | None = getattr(config, f"compression_{name}_level", None)
    return level
