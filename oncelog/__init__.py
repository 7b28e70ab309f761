"""oncelog: a Kafka-compatible broker in one Python process.

This package is what programs import; the packages below it are its inside and may change. `wire`, `coordinator`,
`broker` and `spark` stand at the top of the repository (`spark` as `spark_it/sink`); links lead there from here.

The names below are imported with their first use: ``import oncelog`` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.broker.control.acl_options import Acl
    from oncelog.broker.control.errors import (
        BrokerFailedError,
        InvalidArgumentError,
        NotFoundError,
        NotRunningError,
        OncelogError,
        SnapshotError,
        UnsupportedError,
        WaitTimeoutError,
    )
    from oncelog.broker.control.types import (
        GroupInfo,
        Member,
        Occurrence,
        PartitionInfo,
        ProducerInfo,
        Record,
        Request,
        TopicInfo,
        TransactionInfo,
    )
    from oncelog.broker.embedded.async_api.broker import AsyncBroker
    from oncelog.broker.embedded.sync_api.broker import Broker
    from oncelog.broker.faults.state import RuleState
    from oncelog.wire.errors import ErrorCode, KafkaError

__all__ = [
    "Acl",
    "AsyncBroker",
    "Broker",
    "BrokerFailedError",
    "ErrorCode",
    "GroupInfo",
    "InvalidArgumentError",
    "KafkaError",
    "Member",
    "NotFoundError",
    "NotRunningError",
    "Occurrence",
    "OncelogError",
    "PartitionInfo",
    "ProducerInfo",
    "Record",
    "Request",
    "RuleState",
    "SnapshotError",
    "TopicInfo",
    "TransactionInfo",
    "UnsupportedError",
    "WaitTimeoutError",
    "__version__",
]

__version__ = "0.1.0"

_MODULES = {
    "Acl": "oncelog.broker.control.acl_options",
    "AsyncBroker": "oncelog.broker.embedded.async_api.broker",
    "Broker": "oncelog.broker.embedded.sync_api.broker",
    "BrokerFailedError": "oncelog.broker.control.errors",
    "ErrorCode": "oncelog.wire.errors",
    "GroupInfo": "oncelog.broker.control.types",
    "InvalidArgumentError": "oncelog.broker.control.errors",
    "KafkaError": "oncelog.wire.errors",
    "Member": "oncelog.broker.control.types",
    "NotFoundError": "oncelog.broker.control.errors",
    "NotRunningError": "oncelog.broker.control.errors",
    "Occurrence": "oncelog.broker.control.types",
    "OncelogError": "oncelog.broker.control.errors",
    "PartitionInfo": "oncelog.broker.control.types",
    "ProducerInfo": "oncelog.broker.control.types",
    "Record": "oncelog.broker.control.types",
    "Request": "oncelog.broker.control.types",
    "RuleState": "oncelog.broker.faults.state",
    "TopicInfo": "oncelog.broker.control.types",
    "TransactionInfo": "oncelog.broker.control.types",
    "SnapshotError": "oncelog.broker.control.errors",
    "UnsupportedError": "oncelog.broker.control.errors",
    "WaitTimeoutError": "oncelog.broker.control.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
