"""Errors that users see as one line."""


class PipelineError(Exception):
    """A command cannot continue; the message says why in one line. The exit code is 1."""
