"""Log-ins by SCRAM over TLS: each a new connection with a full handshake, several at a time.

The clients keep the salted password, as real ones do at most once for each process: without that, they would spend
their time in PBKDF2 and the row would say nothing about servers.
"""

import ssl
from concurrent.futures import ThreadPoolExecutor

from bench.experiment import Experiment, Harness, Row, Used, ratio_at_least, ratio_at_most
from bench.listeners import MECHANISM, PASSWORD, SASL_SSL, USER, create_user
from bench.servers import Kind
from tests.common.sasl_client import SaslClient

CONNECTIONS = 4
LOGINS = 2000

RATE = Row("log-ins by SCRAM over TLS", "per s", ratio_at_least(1))
SERVER_CPU = Row("server CPU of such a log-in", "ms", ratio_at_most(1), is_cost=True)


def log_in(bootstrap: str, context: ssl.SSLContext, count: int) -> None:
    """Log in so many times, one after another. Raises LoginFailed, Closed."""
    for _ in range(count):
        with SaslClient(bootstrap, context) as client:
            client.log_in(MECHANISM, USER, PASSWORD)


def _run(harness: Harness, kind: Kind) -> None:
    server, count = harness.warm_server(kind), harness.count(LOGINS) // CONNECTIONS
    listeners = harness.tls_listeners(kind)
    create_user(server.bootstrap)
    context = ssl.create_default_context(cafile=str(listeners.ca))
    address = listeners.address(SASL_SSL)
    log_in(address, context, CONNECTIONS)  # also salts the password
    with ThreadPoolExecutor(CONNECTIONS) as pool, Used(server) as used:
        list(pool.map(lambda _: log_in(address, context, count), range(CONNECTIONS)))
    logins = CONNECTIONS * count
    harness.record(RATE.name, kind, logins / used.seconds, used)
    harness.record(SERVER_CPU.name, kind, 1000 * used.server_s / logins)


EXPERIMENTS = (Experiment("log-ins", (RATE, SERVER_CPU), _run, warm=True),)
