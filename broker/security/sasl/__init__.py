"""SASL: the mechanisms by which clients log in, and the exchange (KIP-12, KIP-84, KIP-152, KIP-255, KIP-368)."""
