"""`address_text`: how an address is written."""

from __future__ import annotations


def address_text(host: str, port: int) -> str:
    """``HOST:PORT``, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
