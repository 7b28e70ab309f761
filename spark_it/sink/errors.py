"""`SinkError`: the sink's exception."""


class SinkError(Exception):
    """The sink refuses its arguments or cannot continue. The message is one line with the sink, batch and task."""
