"""oncelog and Kafka with the same listeners and rights: on PLAINTEXT everybody may do everything, and who logs in by
SASL (PLAIN, SCRAM) may do nothing.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from compat_tests.brokers import UNDISTURBED_KAFKA
from compat_tests.oncelog_server import Oncelog
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from tests.common.jars import BROKER_JVM_OPTIONS, RealPartMissing, compile_java
from tests.common.process import free_ports
from tests.common.real_kafka import RealKafka

USER, PASSWORD = "nobody", "nobody-secret"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
METRICS_TAKER = pathlib.Path(__file__).parents[2] / "compat_tests" / "client_metrics" / "MetricsTaker.java"


class Server(NamedTuple):
    """A running server."""

    name: str
    bootstrap: str
    login: str
    """The address where clients log in; "" for a proxy, whose clients have no rights without one."""
    pid: int
    takes_metrics: bool = True


def properties(login: str) -> dict[str, str]:
    """Of both servers."""
    return {
        "listeners": f"SASL_PLAINTEXT://{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


@contextlib.contextmanager
def oncelog() -> Iterator[Server]:
    """Run oncelog."""
    login = f"127.0.0.1:{free_ports(1)[0]}"
    with Oncelog({**properties(login), "oncelog.client.metrics.enable": "true"}) as broker:
        yield Server("oncelog", broker.bootstrap, login, broker.pid)


@contextlib.contextmanager
def kafka() -> Iterator[Server]:
    """Run a Kafka, with a plug-in that takes metrics if Java has a compiler. Raises RealPartMissing."""
    login = f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        more, class_path = {}, []
        with contextlib.suppress(RealPartMissing):
            class_path = [compile_java([METRICS_TAKER], pathlib.Path(folder))]
            more = {"metric.reporters": "MetricsTaker"}
        broker = RealKafka(
            {**UNDISTURBED_KAFKA, **properties(login), **more},
            jvm_options=BROKER_JVM_OPTIONS,
            class_path=class_path,
        )
        with broker:
            yield Server("Kafka", broker.bootstrap, login, broker.pid, takes_metrics=bool(class_path))


@contextlib.contextmanager
def proxy() -> Iterator[Server]:
    """Run a proxy with an authorizer and without ACLs, before an oncelog."""
    with Oncelog() as broker:
        started = OncelogProxy(broker.bootstrap, ["-c", f"authorizer.class.name={AUTHORIZER}"]).start()
        try:
            yield Server("oncelog proxy", started.bootstrap, "", started.pid)
        finally:
            started.stop()
