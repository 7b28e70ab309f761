"""A small client of Kafka brokers, on Trio: what a proxy, an inspector or a command asks a cluster with.

`connection` is one connection, `cluster_client` all those that a cluster needs. Both work over the seams' `Transport`,
simulated ones too. A request is sent once unless its call asks for more (`Retry`). There is no background task: the
task that waits for a response reads.

It does not pause for ``throttle_time_ms`` (KIP-219), and speaks neither TLS nor SASL.
"""
