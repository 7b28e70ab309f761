"""A broker in somebody else's program: `oncelog.Broker`, `oncelog.AsyncBroker`, and the thread that carries one."""
