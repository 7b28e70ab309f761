"""Prints the requests and responses of a broker or proxy as lines that people read: ``--trace``."""
