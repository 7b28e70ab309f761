"""Topics to a lake, through a windowed aggregation, back to a topic, and an audit of it all."""
