"""The broker's side of coordinators: their internal topics, logs, loading and timers."""
