"""What is left after a stop and after a SIGKILL; a data directory that goes from Kafka to oncelog and back."""
