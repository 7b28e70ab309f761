"""The records of a share partition that are in flight. Pure: no I/O, no clock, no Trio (an import contract)."""
