"""The operations of a broker that a client of any Kafka cluster can do: for the pytest plugin, and for a proxy."""
