"""Consumer groups and their committed offsets: pure state machines over the records of ``__consumer_offsets``."""
