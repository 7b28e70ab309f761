"""Reads a document by HTTP. It blocks: for `FileSystem.offload`, or before the loop runs."""

from __future__ import annotations

import http.client
import os
import urllib.request
from collections.abc import Callable

import trio

DOCUMENT_BYTES_MAX = 1 << 20
TIMEOUT_S = 10.0
"""Seconds that a connection, or a read, may take."""


def read_document(url: str) -> bytes:
    """Return the document at an ``http`` or ``https`` URL. Raises OSError."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(url, timeout=TIMEOUT_S) as response:
            content: bytes = response.read(DOCUMENT_BYTES_MAX + 1)
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error
    if len(content) > DOCUMENT_BYTES_MAX:
        raise OSError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return content


async def read_beside_the_loop(url: str, read: Callable[[str], bytes] = read_document) -> bytes:
    """Return the document, read in a thread. A cancellation abandons the thread. Raises OSError."""
    return await trio.to_thread.run_sync(read, url, abandon_on_cancel=True)


def modified_at(path: str) -> int:
    """Return when a file was changed (nanoseconds). Raises OSError."""
    return os.stat(path).st_mtime_ns
