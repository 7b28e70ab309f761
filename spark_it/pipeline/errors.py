"""What a user is told in one line."""


class PipelineError(Exception):
    """The run cannot go on; the message says why, in one line. The command line exits with 1."""
