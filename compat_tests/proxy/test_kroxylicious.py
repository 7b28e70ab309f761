"""The harness of Kroxylicious: clients reach Kafka through it, at its addresses and at no other."""

from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, SharedBrokers
from compat_tests.clients.stock_clients import PYTHON_CLIENTS, Options, Record
from compat_tests.differential import make_topic
from compat_tests.proxy.kroxylicious import Kroxylicious
from tests.common.batches import now_ms
from tests.common.frames import Connection, address
from tests.common.jars import RealPartMissing, require

START_MS = now_ms()
WORK_WITH_IT = ("confluent-kafka", "kafka-python")
"""Not aiokafka: it refuses a broker that offers ShareFetch "from version 1 to 0", as Kroxylicious 0.12 does."""


@pytest.fixture(scope="module")
def kafka(brokers: SharedBrokers) -> Broker:
    return brokers["kafka"]


@pytest.fixture(scope="module")
def kroxylicious(kafka: Broker) -> Iterator[Kroxylicious]:
    try:
        with Kroxylicious(kafka.bootstrap) as proxy:
            yield proxy
    except RealPartMissing as missing:
        require(str(missing))


def test_it_presents_itself_as_the_node(kroxylicious: Kroxylicious, kafka: Broker) -> None:
    host, port = address(kroxylicious.bootstrap)
    with Connection(kroxylicious.bootstrap) as connection:
        (row,) = connection.call("Metadata", 12, {"topics": []})["brokers"]
    assert (row["host"], row["port"]) == (host, port + 1)
    assert row["port"] != address(kafka.bootstrap)[1]


@pytest.mark.parametrize("client", WORK_WITH_IT)
def test_records_pass(kroxylicious: Kroxylicious, kafka: Broker, name: str, client: str) -> None:
    """They are written through it, and read from Kafka and through it."""
    records = [Record(b"key", b"value %d" % number, (("h", b"1"),), START_MS) for number in range(9)]
    make_topic(kroxylicious.bootstrap, name)
    stock = PYTHON_CLIENTS[client]
    assert stock.produce(kroxylicious.bootstrap, name, 0, records, Options()) == list(range(9))
    assert stock.consume(kafka.bootstrap, name, 0, 0, 9) == records
    assert stock.consume(kroxylicious.bootstrap, name, 0, 0, 9) == records
