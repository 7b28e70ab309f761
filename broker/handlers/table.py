"""Which APIs are served, and which versions of each: the only list of them.

ApiVersions, the version check of every request, the API table in the docs and the compatibility matrix all derive
from `HANDLERS`. A name here is the name of three modules: ``wire.messages.<name>``, ``broker.handlers.<name>`` and
``tests.handlers.test_<name>``. They are imported at an API's first request, since start-up time is a feature.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.handlers.chunked import LONG_RESPONSES
from oncelog.broker.request import CloseConnection
from oncelog.broker.slices import Slices
from oncelog.wire.compiler import compile_step_encoder
from oncelog.wire.header import has_tagged_response_header

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.wire.compiler import StepEncoder
    from oncelog.wire.errors import KafkaError
    from oncelog.wire.schema import Message

Handle = Callable[["Services", Any, "RequestContext"], "Message | Coroutine[Any, Any, Message] | None"]


class Handler(NamedTuple):
    """One API: its key, its name, the versions that are answered, and the lowest that is announced."""

    api_key: int
    name: str
    min_version: int
    max_version: int
    announced_min: int


def _table(*rows: tuple[int, str, int, int]) -> dict[int, Handler]:
    return {key: Handler(key, name, low, high, low) for key, name, low, high in rows}


HANDLERS: dict[int, Handler] = _table(
    (0, "produce", 3, 13),
    (1, "fetch", 4, 18),
    (2, "list_offsets", 1, 11),
    (3, "metadata", 0, 13),
    (8, "offset_commit", 2, 10),
    (9, "offset_fetch", 1, 10),
    (10, "find_coordinator", 0, 6),
    (11, "join_group", 0, 9),
    (12, "heartbeat", 0, 4),
    (13, "leave_group", 0, 5),
    (14, "sync_group", 0, 5),
    (15, "describe_groups", 0, 6),
    (16, "list_groups", 0, 5),
    (18, "api_versions", 0, 4),
    (19, "create_topics", 2, 7),
    (20, "delete_topics", 1, 6),
    (21, "delete_records", 0, 2),
    (22, "init_producer_id", 0, 5),
    (23, "offset_for_leader_epoch", 2, 4),
    (24, "add_partitions_to_txn", 0, 5),
    (25, "add_offsets_to_txn", 0, 4),
    (26, "end_txn", 0, 5),
    (27, "write_txn_markers", 1, 2),
    (28, "txn_offset_commit", 0, 5),
    (29, "describe_acls", 1, 3),
    (30, "create_acls", 1, 3),
    (31, "delete_acls", 1, 3),
    (32, "describe_configs", 1, 4),
    (33, "alter_configs", 0, 2),
    (34, "alter_replica_log_dirs", 1, 2),
    (35, "describe_log_dirs", 1, 5),
    (37, "create_partitions", 0, 3),
    (42, "delete_groups", 0, 2),
    (43, "elect_leaders", 0, 2),
    (44, "incremental_alter_configs", 0, 1),
    (45, "alter_partition_reassignments", 0, 1),
    (46, "list_partition_reassignments", 0, 0),
    (47, "offset_delete", 0, 0),
    (48, "describe_client_quotas", 0, 1),
    (50, "describe_user_scram_credentials", 0, 0),
    (55, "describe_quorum", 0, 2),
    (57, "update_features", 0, 2),
    (60, "describe_cluster", 0, 2),
    (61, "describe_producers", 0, 0),
    (65, "describe_transactions", 0, 0),
    (66, "list_transactions", 0, 2),
    (68, "consumer_group_heartbeat", 0, 1),
    (69, "consumer_group_describe", 0, 1),
    (74, "list_config_resources", 0, 1),
    (75, "describe_topic_partitions", 0, 0),
)

# Older librdkafka switches compression off unless Produce is announced from 0; versions 0 to 2 are refused all the
# same (KAFKA-18659).
HANDLERS[0] = HANDLERS[0]._replace(announced_min=0)

API_VERSIONS = 18

ANSWER_BYTES_MAX = 1024 * 1024 * 1024
"""Bytes of an answer that is encoded in steps. The protocol allows twice as many; a short request that names a large
group again and again asks for any number."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_TAGGED_HEAD = struct.Struct(">iix")


class Api:
    """A handler with its modules loaded and one codec per version: what a connection needs for a request."""

    __slots__ = (
        "answers_are_long",
        "decoders",
        "documentation",
        "encoders",
        "flexible",
        "handle",
        "handler",
        "max_version",
        "min_version",
        "request",
        "response",
        "response_head",
        "step_encoders",
    )

    def __init__(self, handler: Handler) -> None:
        messages = _load(f"oncelog.wire.messages.{handler.name}")
        module = _load(f"oncelog.broker.handlers.{handler.name}")
        stem = "".join(word.capitalize() for word in handler.name.split("_"))
        self.handler = handler
        self.min_version = handler.min_version
        self.max_version = handler.max_version
        self.request: type[Message] = getattr(messages, stem + "Request")
        self.response: type[Message] = getattr(messages, stem + "Response")
        self.answers_are_long = handler.api_key in LONG_RESPONSES
        self.handle: Handle = module.handle
        self.documentation: str | None = module.__doc__
        self.decoders: list[Callable[..., Any] | None] = [None] * (handler.max_version + 1)
        self.encoders: list[Callable[..., None] | None] = [None] * (handler.max_version + 1)
        self.step_encoders: dict[int, StepEncoder[Any]] = {}
        self.flexible = [
            version >= self.request.MIN_VERSION and self.request.is_flexible(version)
            for version in range(handler.max_version + 1)
        ]
        # An answer's first bytes, of its size (to be filled in) and its correlation id.
        self.response_head = [
            (_TAGGED_HEAD if has_tagged_response_header(handler.api_key, flexible) else _HEAD).pack
            for flexible in self.flexible
        ]

    def decoder(self, version: int) -> Callable[..., Any]:
        found = self.decoders[version]
        if found is None:
            found = self.decoders[version] = self.request.decoder(version)
        return found

    def encoder(self, version: int) -> Callable[..., None]:
        found = self.encoders[version]
        if found is None:
            found = self.encoders[version] = self.response.encoder(version)
        return found

    def encode_answer(
        self,
        version: int,
        correlation_id: int,
        answer: Message,
        out: bytearray,
        ranges: list[tuple[int, Any]],
    ) -> None:
        """Put an answer behind what is in ``out``: its size, header and response (`Message.encode_into`)."""
        start = len(out)
        ranges_before = len(ranges)
        out += self.response_head[version](0, correlation_id)
        encode = self.encoders[version] or self.encoder(version)
        encode(answer, out, ranges)
        size = len(out) - start - _SIZE.size
        if len(ranges) > ranges_before:
            size += sum(file_range.size for _, file_range in ranges[ranges_before:])
        _SIZE.pack_into(out, start, size)

    async def encode_in_steps(
        self, version: int, correlation_id: int, answer: Message, out: bytearray
    ) -> None:
        """`encode_answer` of a long answer without ranges of files: others have their turn meanwhile, but write nothing
        to ``out``. Raises CloseConnection where it is longer than `ANSWER_BYTES_MAX`.
        """
        start = len(out)
        out += self.response_head[version](0, correlation_id)
        encode = self.step_encoders.get(version)
        if encode is None:
            encode = self.step_encoders[version] = compile_step_encoder(self.response, version)
        slices = Slices()
        for _ in encode(answer, out, []):
            if len(out) - start > ANSWER_BYTES_MAX:
                raise CloseConnection(f"{self.handler.name} asks for more than {ANSWER_BYTES_MAX} bytes")
            if slices.is_over():
                await slices.pause()
        _SIZE.pack_into(out, start, len(out) - start - _SIZE.size)

    def refuse(self, version: int, error: KafkaError) -> Message:
        """The answer that says only ``error``. Raises CloseConnection where such an answer has no field for it."""
        response: Any = self.response()
        fields = {
            field.name for field in self.response.FIELDS if field.versions[0] <= version <= field.versions[1]
        }
        if "error_code" not in fields:
            raise CloseConnection(f"{self.handler.name} cannot be answered: {error}")
        response.error_code = error.code
        if "error_message" in fields:
            response.error_message = error.message
        return response  # type: ignore[no-any-return]


def _load(name: str) -> Any:
    __import__(name)
    return sys.modules[name]


loaded: dict[int, Api] = {}
"""The APIs that were asked for so far, by key."""


def api(api_key: int) -> Api | None:
    """The API with that key, loaded; None where it is not served."""
    found = loaded.get(api_key)
    if found is None:
        handler = HANDLERS.get(api_key)
        if handler is None:
            return None
        found = loaded[api_key] = Api(handler)
    return found
