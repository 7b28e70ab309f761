"""One API of the table with what its requests need: its handler, and one codec per version."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.chunked import LONG_RESPONSES
from oncelog.broker.handlers.table import api_name
from oncelog.broker.reasons import Reason
from oncelog.broker.request import CloseConnection
from oncelog.broker.slices import Slices
from oncelog.wire.compiler import compile_step_encoder
from oncelog.wire.header import has_tagged_response_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.handlers.table import Handle, Handler
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.wire.compiler import StepEncoder
    from oncelog.wire.errors import KafkaError
    from oncelog.wire.schema import Message

RESPONSE_BYTES_MAX = 1024 * 1024 * 1024
"""Bytes of the largest response that is encoded in steps. The protocol allows twice as many; a short request that names
one large group many times may ask for more."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_TAGGED_HEAD = struct.Struct(">iix")


class Api:
    """An API whose modules are loaded; its codecs are compiled at their first use. In a proxy it has no handler: not
    ``is_handled``.
    """

    __slots__ = (
        "decoders",
        "documentation",
        "encoders",
        "flexible",
        "handle",
        "handler",
        "has_long_responses",
        "has_throttle_time",
        "kafka_name",
        "max_version",
        "min_version",
        "request",
        "response",
        "response_head",
        "step_encoders",
    )

    def __init__(self, handler: Handler, *, is_handled: bool = True) -> None:
        messages = _load(f"oncelog.wire.messages.{handler.name}")
        module = _load(f"oncelog.broker.handlers.{handler.name}") if is_handled else None
        stem = self.kafka_name = api_name(handler.name)
        self.handler = handler
        self.min_version = handler.min_version
        self.max_version = handler.max_version
        self.request: type[Message] = getattr(messages, stem + "Request")
        self.response: type[Message] = getattr(messages, stem + "Response")
        self.has_throttle_time = any(field.name == "throttle_time_ms" for field in self.response.FIELDS)
        self.has_long_responses = handler.api_key in LONG_RESPONSES
        self.handle: Handle = module.handle if module is not None else _not_handled
        self.documentation: str | None = module.__doc__ if module is not None else None
        self.decoders: list[Callable[..., Any] | None] = [None] * (handler.max_version + 1)
        self.encoders: list[Callable[..., None] | None] = [None] * (handler.max_version + 1)
        self.step_encoders: dict[int, StepEncoder[Any]] = {}
        self.flexible = [
            version >= self.request.MIN_VERSION and self.request.is_flexible(version)
            for version in range(handler.max_version + 1)
        ]
        # The first bytes of a response: its size, which is filled in last, and its correlation id.
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

    def encode_response(
        self,
        version: int,
        correlation_id: int,
        response: Message,
        out: bytearray,
        ranges: list[tuple[int, Any]],
    ) -> None:
        """Append a response to ``out``: its size, its header and its body (`Message.encode_into`)."""
        start = len(out)
        ranges_before = len(ranges)
        out += self.response_head[version](0, correlation_id)
        encode = self.encoders[version] or self.encoder(version)
        encode(response, out, ranges)
        size = len(out) - start - _SIZE.size
        if len(ranges) > ranges_before:
            size += sum(file_range.size for _, file_range in ranges[ranges_before:])
        _SIZE.pack_into(out, start, size)

    async def encode_in_steps(
        self, version: int, correlation_id: int, response: Message, out: bytearray
    ) -> None:
        """As `encode_response`, for a long response without ranges of files. Other tasks run meanwhile; they must not
        append to ``out``. Raises CloseConnection if it is longer than `RESPONSE_BYTES_MAX`.
        """
        start = len(out)
        out += self.response_head[version](0, correlation_id)
        encode = self.step_encoders.get(version)
        if encode is None:
            encode = self.step_encoders[version] = compile_step_encoder(self.response, version)
        slices = Slices()
        for _ in encode(response, out, []):
            if len(out) - start > RESPONSE_BYTES_MAX:
                del out[start:]
                raise CloseConnection(f"{self.handler.name} asks for more than {RESPONSE_BYTES_MAX} bytes")
            if slices.is_over():
                await slices.pause()
        _SIZE.pack_into(out, start, len(out) - start - _SIZE.size)

    def refuse(self, request: Any, version: int, error: KafkaError) -> Message:
        """Return a response with nothing but ``error``, as Kafka's ``AbstractRequest.getErrorResponse``.

        Raises CloseConnection for a Produce that wants no response: so its client notices, as in Kafka.
        """
        from oncelog.broker.refusal.error_response import error_response, places_of

        name = self.handler.name
        if name == "produce" and request.acks == 0:
            raise CloseConnection(Reason("{} without acks cannot be answered: {}", name, error))
        return error_response(places_of(name, self.request, self.response, version), request, error)  # type: ignore[no-any-return]


def _not_handled(services: Services, request: Any, context: RequestContext) -> Message:
    raise AssertionError(f"{context.api.handler.name} has no handler here")


def _load(name: str) -> Any:
    __import__(name)
    return sys.modules[name]
