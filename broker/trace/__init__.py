"""What passes between clients and a broker, or a proxy, as lines that people read: ``--trace``."""
