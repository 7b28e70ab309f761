"""The operations on a `ControlledBroker` over HTTP, as JSON: ``oncelog serve --control``."""
