"""The API versions and features that a broker announces: all of oncelog's, or those of an earlier release of Kafka."""
