"""A node with its cluster metadata and nothing else, for handlers that need no partition logs, loop or network."""

from __future__ import annotations

import random
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import trio

from oncelog.broker.cluster.cluster import Cluster
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.dynamic import DynamicBrokerConfig
from oncelog.broker.metadata.configs import dynamic_broker_texts
from oncelog.broker.metadata.image import BROKER
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.refusal.error_response import error_fields_of, error_response
from oncelog.broker.requests.authorization import Authorization
from oncelog.broker.requests.request import Pending
from oncelog.broker.security.host_names import HostNames
from oncelog.wire.errors import KafkaError
from oncelog.wire.schema import Message
from oncelog.wire.stored.metadata import BrokerEndpoint, ConfigRecord
from tests.harness.clocks import FixedClock
from tests.harness.look_ups import at_once
from tests.sim.files import SimFileSystem

DATA_DIR = "/data"
DIRECTORY_ID = bytes(range(16))
LISTENER = "PLAINTEXT"


def open_store(
    files: SimFileSystem, config: BrokerConfig, clock: FixedClock | None = None, seed: int = 1
) -> MetadataStore:
    """A store on this disk, started and registered, as a node's start does it."""
    store = MetadataStore(
        DATA_DIR,
        files,
        clock or FixedClock(),
        random.Random(seed),
        config,
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        directory_id=DIRECTORY_ID,
    )
    store.start()
    store.register([BrokerEndpoint(LISTENER, "localhost", 9092, 0)])
    return store


class StandInNode:
    """The services that admin handlers use. ``config`` follows dynamic changes, as a node's does."""

    def __init__(self, texts: dict[str, str] | None = None, seed: int = 1) -> None:
        self.files = SimFileSystem(random.Random(seed))
        self.files.makedirs(DATA_DIR)
        self.clock = FixedClock()
        self.config = DynamicBrokerConfig(BrokerConfig(texts))
        self.metadata = open_store(self.files, self.config.static, self.clock, seed)
        no_logs: Any = None
        self.cluster = Cluster(self.config.static.node_id, self.metadata, no_logs)
        self.authorization = Authorization()
        self.host_names = HostNames()
        self.host_names.look_up = at_once
        self.records: list[Message] = []
        self.metadata.subscribe(self._on_record)

    def _on_record(self, record: Message, topic: object) -> None:
        self.records.append(record)
        if isinstance(record, ConfigRecord) and record.resource_type == BROKER:
            self.config.change(dynamic_broker_texts(self.metadata.image, self.config.static.node_id))

    def call(self, request: Message, version: int) -> Any:
        """Return the response of the API's handler. Request and response are encoded and decoded in the version."""
        messages = type(request).__module__
        handler = import_module(messages.replace("oncelog.wire.messages", "oncelog.broker.handlers"))
        connection = SimpleNamespace(listener_name=LISTENER)
        context = SimpleNamespace(
            api_version=version,
            connection=connection,
            principal="User:ANONYMOUS",
            host="127.0.0.1",
            usage=None,
            forwarded_by=None,
        )
        seen = type(request).decode(request.encode(version), version)
        try:
            response = handler.handle(self, seen, context)
            if isinstance(response, Pending):
                response = trio.run(response.wait)
        except KafkaError as error:
            name = messages.rpartition(".")[2]
            kind = getattr(
                import_module(messages), type(request).__name__.removesuffix("Request") + "Response"
            )
            response = error_response(error_fields_of(name, type(request), kind, version), seen, error)
        return type(response).decode(response.encode(version), version)
