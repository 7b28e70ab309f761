"""What every librdkafka client of this project begins with; the user's own settings come after it and win."""

from collections.abc import Mapping

# A new client learns from its first broker that the broker has a number, and connects to it once more under that. With
# sparse connections that second one waits for half of reconnect.backoff.ms, 50 ms: nearly all of what a transactional
# producer's start took. Without them a client connects at once, and to every broker of the cluster.
AT_ONCE = {"enable.sparse.connections": "false"}
# The default is to bootstrap again when all brokers were lost, which with one broker is each restart of it. librdkafka
# 2.16 may then leave send_offsets_to_transaction waiting for ever, past its time-out, on a connection to the group
# coordinator that it has given up already.
NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}
# While a broker is not found librdkafka tries again by itself, and what does not come right is raised: nothing is left
# to print. Level 0 still prints that a producer is fenced, which happens where two tasks claim a sink at once; a queue
# that nobody reads prints nothing.
QUIET = {"log_level": 0, "log.queue": True}


Value = str | int | float | bool


def client(settings: Mapping[str, str], **more: Value) -> dict[str, Value]:
    """The whole configuration of a client: `settings` over the defaults, `more` (with _ for .) over both."""
    given = {key.replace("_", "."): value for key, value in more.items()}
    return {**AT_ONCE, **NO_REBOOTSTRAP, **settings, **QUIET, **given}
