"""One API of the table with what its requests need: its handler, and one codec per version."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any

import trio

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.handlers.table import api_name
from oncelog.broker.logging.reasons import Reason
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.wire.compiler import compile_at_once_decoder, compile_step_decoder, compile_step_encoder
from oncelog.wire.header import has_tagged_response_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.handlers.table import ApiRow, Handle
    from oncelog.broker.net.writer import ResponseWriter
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.compiler import StepEncoder
    from oncelog.wire.errors import KafkaError
    from oncelog.wire.schema import Message

RESPONSE_BYTES_MAX = 1024 * 1024 * 1024
"""Bytes of the largest response that is encoded in steps. The protocol allows twice as many; a short request that names
one large group many times may ask for more."""
WHOLE_RESPONSE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of the largest response that is encoded before it is sent. A larger one is encoded twice: first to know its
size, then as the client reads it."""
LARGE_RESPONSE_BYTES = 1024 * 1024
"""Bytes of a response beyond which its encoding takes one of the `LARGE_RESPONSES_AT_ONCE` turns."""
LARGE_RESPONSES_AT_ONCE = 4
"""Large responses of a node that are encoded at the same time, before they are sent."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_TAGGED_HEAD = struct.Struct(">iix")


class LargeResponses:
    """The limits of responses that are encoded in steps, and their turns."""

    def __init__(
        self, bytes_max: int = RESPONSE_BYTES_MAX, whole_bytes_max: int = WHOLE_RESPONSE_BYTES_MAX
    ) -> None:
        self.bytes_max = bytes_max
        self.whole_bytes_max = whole_bytes_max
        self.turns = trio.Semaphore(LARGE_RESPONSES_AT_ONCE)
        """Taken while a large response is encoded."""


class Api:
    """An API whose modules are loaded; its codecs are compiled at their first use. Without ``is_handled``, as in a
    proxy, its `handle` must not be called.
    """

    def __init__(self, row: ApiRow, *, is_handled: bool = True) -> None:
        from oncelog.broker.handlers.rights import check_of

        messages = _load(f"oncelog.wire.messages.{row.name}")
        module = _load(f"oncelog.broker.handlers.{row.name}") if is_handled else None
        stem = self.kafka_name = api_name(row.name)
        self.row = row
        self.min_version = row.min_version
        self.max_version = row.max_version
        self.request: type[Message] = getattr(messages, stem + "Request")
        self.response: type[Message] = getattr(messages, stem + "Response")
        self.has_throttle_time = any(field.name == "throttle_time_ms" for field in self.response.FIELDS)
        self.authorize = check_of(row)
        """Checks the rights of a whole request before its handler; None if there is nothing to check."""
        self.handle: Handle = module.handle if module is not None else _not_handled
        self.documentation: str | None = module.__doc__ if module is not None else None
        self.decoders: list[Callable[..., Any] | None] = [None] * (row.max_version + 1)
        self.encoders: list[Callable[..., None] | None] = [None] * (row.max_version + 1)
        self.flexible = [
            version >= self.request.MIN_VERSION and self.request.is_flexible(version)
            for version in range(row.max_version + 1)
        ]
        # The first bytes of a response: its size, which is filled in last, and its correlation id.
        self.response_head = [
            (_TAGGED_HEAD if has_tagged_response_header(row.api_key, flexible) else _HEAD).pack
            for flexible in self.flexible
        ]

    def decoder(self, version: int) -> Callable[..., Any]:
        """Return the compiled decoder of requests, which raises `ManyElements` for a large one."""
        found = self.decoders[version]
        if found is None:
            found = self.decoders[version] = compile_at_once_decoder(self.request, version)
        return found

    async def decode_in_steps(self, version: int, frame: memoryview, start: int) -> Any:
        """Decode the request that begins at ``start``, while other tasks run. Raises DecodeError."""
        request, _ = await in_slices(compile_step_decoder(self.request, version)(frame, start))
        return request

    async def decode_response_in_steps(self, version: int, payload: Any, start: int) -> Any:
        """Decode the response that begins at ``start``, while other tasks run. Raises DecodeError."""
        response, _ = await in_slices(compile_step_decoder(self.response, version)(payload, start))
        return response

    def request_step_encoder(self, version: int) -> StepEncoder[Any]:
        """Return the compiled encoder of large requests."""
        return compile_step_encoder(self.request, version)

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
        self,
        version: int,
        correlation_id: int,
        response: Message,
        writer: ResponseWriter,
        limits: LargeResponses,
    ) -> int:
        """As `encode_response`, while other tasks run; they must not use the ``writer``. A large response takes one of
        the turns until it is encoded. One of more than ``whole_bytes_max`` is sent as the client reads it. Returns its
        size, with the size field.

        Raises CloseConnection if it is longer than ``bytes_max``, and as `ResponseWriter.flush`.
        """
        out: bytearray = writer.out
        ranges: list[Any] = writer.ranges
        start, ranges_before = len(out), len(ranges)
        head = self.response_head[version]
        out += head(0, correlation_id)
        encode = compile_step_encoder(self.response, version)
        slices = Slices()
        # bytes encoded only to know the size, and dropped; they are encoded again when they are sent
        counted = 0
        size = 0
        is_large = False
        try:
            for _ in encode(response, out, ranges):
                size = len(out) - start
                if size > LARGE_RESPONSE_BYTES and not is_large:
                    await limits.turns.acquire()
                    is_large = True
                if counted or (size > limits.whole_bytes_max and not self.row.has_records):
                    counted += size
                    del out[start:]
                if max(counted, size) > limits.bytes_max:
                    del out[start:]
                    raise CloseConnection(f"{self.row.name} asks for more than {limits.bytes_max} bytes")
                if slices.is_over():
                    await slices.pause()
        finally:
            if is_large:
                limits.turns.release()
        size = counted + len(out) - start
        if not counted:
            size += sum([int(file_range.size) for _, file_range in ranges[ranges_before:]])
            _SIZE.pack_into(out, start, size - _SIZE.size)
            return size
        del out[start:]
        out += head(size - _SIZE.size, correlation_id)
        await self._send_in_steps(encode, response, writer)
        return size

    @staticmethod
    async def _send_in_steps(encode: StepEncoder[Any], response: Message, writer: ResponseWriter) -> None:
        """Encode a response again, and send it as the client reads."""
        slices = Slices()
        part = bytearray()
        # a guess: the memory that the response's objects take is not known
        writer.hold(WHOLE_RESPONSE_BYTES_MAX)
        try:
            for _ in encode(response, part, []):
                writer.out += part
                part.clear()
                await writer.flush_if_full()
                if slices.is_over():
                    await slices.pause()
        finally:
            writer.release()
        writer.out += part

    def refuse(self, request: Any, version: int, error: KafkaError) -> Message | Pending[Message]:
        """Return a response with nothing but ``error``, as Kafka's ``AbstractRequest.getErrorResponse``. It is pending
        for a request of many rows.

        Raises CloseConnection for a Produce that wants no response: so its client notices, as in Kafka.
        """
        from oncelog.broker.refusal.error_response import error_fields_of, error_response_in_steps

        name = self.row.name
        if name == "produce" and request.acks == 0:
            raise CloseConnection(Reason("{} without acks cannot be answered: {}", name, error))
        error_fields = error_fields_of(name, self.request, self.response, version)
        return chunked_steps(error_response_in_steps(error_fields, request, error))


def _not_handled(services: Services, request: Any, context: RequestContext) -> Message:
    raise AssertionError(f"{context.api.row.name} has no handler here")


def _load(name: str) -> Any:
    __import__(name)
    return sys.modules[name]
