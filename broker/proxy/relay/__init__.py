"""What happens to the bytes of a client's connection. Pure: no I/O, no clock, no Trio (an import contract)."""
