# Made by .ci/unasync.py from async_api/__init__.py: edit that one.
"""The public classes for synchronous code."""
