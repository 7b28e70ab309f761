"""What stops a sink."""


class SinkError(Exception):
    """The sink refuses or cannot go on; the message is one line that names the sink, and the batch and task."""
