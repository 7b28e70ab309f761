"""What either end of a connection proves itself with: key stores, TLS options, JAAS text, the keys of SCRAM."""
