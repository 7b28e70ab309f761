"""A broker that a test controls: `ControlledBroker`, and the operations on it by name."""
