"""The relay of a proxy: what happens to the bytes of a connection, without I/O, clock, Trio and await."""
