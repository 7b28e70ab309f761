"""Credentials of either end of a connection: key stores, TLS options, JAAS text, the keys of SCRAM."""
