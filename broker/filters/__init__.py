"""Filters: interceptors that users write, for the proxy or the broker; and what helps to write them."""
