"""TLS, SASL, ACLs and quotas of a broker."""
