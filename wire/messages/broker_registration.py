"""BrokerRegistration (62): a broker that starts asks the controller for an epoch (KIP-631).

Version 2 has the data directories (KIP-858), 3 the epoch that ended with a clean stop (KIP-966), 4 also features whose
minimum is 0. A broker whose ``previous_broker_epoch`` is not its last one has not stopped cleanly.
"""

from __future__ import annotations

from oncelog.wire.schema import (
    Message,
    Request,
    Struct,
    Uuid,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(
    Request["BrokerRegistrationResponse"], api_key=62, kind="request", versions="0-4", flexible="0+"
):
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[Uuid] = array(uuid, "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, api_key=62, kind="response", versions="0-4", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
