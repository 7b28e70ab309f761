"""Reads a document by HTTP, or posts a form. Both block: beside the loop, or before it runs."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial

import trio

DOCUMENT_BYTES_MAX = 1 << 20
ERROR_BYTES_MAX = 1 << 16
TIMEOUT_S = 10.0
"""Seconds that a connection, or a read, may take."""


class HttpStatusError(OSError):
    """The server answers with ``status``, and not with the document."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"{status} {why}")
        self.status = status


def read_document(url: str, tls: ssl.SSLContext | None = None) -> bytes:
    """Return the document at an ``http`` or ``https`` URL. ``tls``: whom to trust, None: whom the system trusts.

    Raises OSError.
    """
    return _read(url, TIMEOUT_S, tls)


def _read(
    request: str | urllib.request.Request, timeout_s: float, tls: ssl.SSLContext | None = None
) -> bytes:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=tls),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(request, timeout=timeout_s) as response:
            content: bytes = response.read(DOCUMENT_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        raise HttpStatusError(error.code, _reason(error)) from error
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error
    if len(content) > DOCUMENT_BYTES_MAX:
        raise OSError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return content


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the reason that a server gives, in OAuth's words if it speaks them (RFC 6749, 5.2)."""
    with error:
        try:
            said = json.loads(error.read(ERROR_BYTES_MAX))
        except (OSError, ValueError, http.client.HTTPException, RecursionError):
            said = None
    if isinstance(said, dict) and isinstance(said.get("error"), str):
        return " - ".join(str(said[key])[:200] for key in ("error", "error_description") if key in said)
    return str(error.reason)


async def post_form(
    url: str, headers: Mapping[str, str], body: str, timeout_s: float, tls: ssl.SSLContext | None = None
) -> bytes:
    """Post a form's ``body`` to a URL in a thread, and return the response. Raises OSError, HttpStatusError."""
    content = {**headers, "Content-Type": "application/x-www-form-urlencoded", "Cache-Control": "no-cache"}
    request = urllib.request.Request(url, body.encode(), content, method="POST")
    return await trio.to_thread.run_sync(partial(_read, request, timeout_s, tls), abandon_on_cancel=True)


async def read_beside_the_loop(url: str, tls: ssl.SSLContext | None = None) -> bytes:
    """Return the document, read in a thread. A cancellation abandons the thread. Raises OSError."""
    return await trio.to_thread.run_sync(read_document, url, tls, abandon_on_cancel=True)


def modified_at(path: str) -> int:
    """Return when a file was changed (nanoseconds). Raises OSError."""
    return os.stat(path).st_mtime_ns
