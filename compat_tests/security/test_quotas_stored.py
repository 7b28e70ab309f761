"""Client quotas on the disk: a directory that Kafka wrote goes to oncelog and back, with the quotas in force."""

import contextlib
import pathlib

from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from compat_tests.security.test_quotas import Entity, Quotas, produce
from tests.common import exchanges
from tests.common.batches import WAIT_MS, batch, now_ms, record
from tests.common.frames import Connection
from tests.common.jars import RealPartMissing, require
from tests.common.real_kafka import RealKafka

LARGE = batch([record(value=bytes(20_000))])
ALL: dict[str, object] = {"components": [], "strict": False}


def described(session: Session, wanted: set[str]) -> set[str]:
    """All quotas, once they are those: a Kafka that starts learns of them a moment later."""
    deadline = now_ms() + WAIT_MS
    while True:
        entries = session.call_unobserved("DescribeClientQuotas", 1, ALL)["entries"]
        found = {
            f"{[(one['entity_type'], one['entity_name']) for one in entry['entity']]}"
            f" {value['key']} {value['value']}"
            for entry in entries
            for value in entry["values"]
        }
        if found == wanted or now_ms() > deadline:
            return found


def throttle_ms(bootstrap: str, client_id: str) -> int:
    with contextlib.closing(Connection(bootstrap, client_id)) as connection:
        return int(connection.call("Produce", 9, produce("t", LARGE))["throttle_time_ms"])


@exchanges.METADATA
def test_a_directory_with_quotas_goes_to_oncelog_and_back(tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / "data"
    mine: Entity = {"client-id": "mine"}
    address: Entity = {"ip": "10.0.0.1"}
    both: Entity = {"client-id": None, "user": "alice"}
    try:
        with RealKafka({}, data_dir) as kafka:
            session = Session(kafka.bootstrap)
            session.topic("t")
            quotas = Quotas(session)
            quotas.alter(mine, {"producer_byte_rate": 1000})
            quotas.alter({"client-id": "gone"}, {"producer_byte_rate": 1000})
            quotas.alter(both, {"request_percentage": 12.5, "controller_mutation_rate": 3.5})
            quotas.alter(address, {"connection_creation_rate": 5})
            session.end()
    except RealPartMissing as missing:
        require(str(missing))
    stored = {
        "[('client-id', 'mine')] producer_byte_rate 1000.0",
        "[('client-id', None), ('user', 'alice')] request_percentage 12.5",
        "[('client-id', None), ('user', 'alice')] controller_mutation_rate 3.5",
        "[('ip', '10.0.0.1')] connection_creation_rate 5.0",
    }
    gone = "[('client-id', 'gone')] producer_byte_rate 1000.0"
    new = "[('client-id', 'new')] producer_byte_rate 1000.0"
    with Oncelog({}, data_dir) as ours:
        session = Session(ours.bootstrap)
        assert described(session, {*stored, gone}) == {*stored, gone}
        assert throttle_ms(ours.bootstrap, "mine") > 9000
        assert throttle_ms(ours.bootstrap, "new") == 0
        quotas = Quotas(session)
        quotas.alter({"client-id": "gone"}, {"producer_byte_rate": None})
        quotas.alter({"client-id": "new"}, {"producer_byte_rate": 1000})
        session.end()
        assert ours.tracebacks == 0
    with RealKafka({}, data_dir) as again:
        session = Session(again.bootstrap)
        session.wait_for_leaders("t", 1)
        assert described(session, {*stored, new}) == {*stored, new}
        assert throttle_ms(again.bootstrap, "mine") > 9000
        assert throttle_ms(again.bootstrap, "new") > 9000
        assert throttle_ms(again.bootstrap, "gone") == 0
        session.end()
