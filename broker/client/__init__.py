"""A small Kafka client on Trio, for proxies, inspectors and commands.

`connection` has one connection to a broker, `cluster_client` the connections to all brokers of a cluster. Both use the
seams' `Transport`, which tests simulate. A request is sent once, unless the call passes a `Retry`. There is no
background task: the task that waits for a response reads it.

`security` has TLS and the log-ins. The client does not pause for ``throttle_time_ms`` (KIP-219).
"""
