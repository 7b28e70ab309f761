"""TLS on listeners (Kafka: ``org.apache.kafka.common.security.ssl``). It needs the extra ``security``."""
