"""Topics are loaded into a lake; events are aggregated into results, which are published; an audit compares all."""
