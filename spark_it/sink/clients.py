"""The configuration that every librdkafka client of this project starts from; the user's settings override it."""

from collections.abc import Mapping

# A new client learns the node id of its bootstrap broker and then connects to it a second time. With sparse connections
# the second connection waits for half of reconnect.backoff.ms, 50 ms, which is nearly all of a transactional producer's
# start. Without them a client connects at once, but to every broker of the cluster.
AT_ONCE = {"enable.sparse.connections": "false"}
# By default a client bootstraps again when it has lost all brokers; with one broker that is at each restart.
# send_offsets_to_transaction of librdkafka 2.16 may then wait for ever, past its timeout, on a connection to the group
# coordinator that the client has already given up.
NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}
# librdkafka retries by itself while it finds no broker, and raises permanent errors: there is nothing to print. Level 0
# still prints that a producer is fenced, as when two tasks claim a sink at once; a log queue that is never read prints
# nothing.
QUIET = {"log_level": 0, "log.queue": True}


Value = str | int | float | bool


def client(settings: Mapping[str, str], **more: Value) -> dict[str, Value]:
    """A client's configuration: the defaults, then `settings`, then `more` (with _ for .); later ones win."""
    dotted = {key.replace("_", "."): value for key, value in more.items()}
    return {**AT_ONCE, **NO_REBOOTSTRAP, **settings, **QUIET, **dotted}
