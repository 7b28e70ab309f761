"""Settings for kafka-python that make a trial short; and `isolation_level`: its default is read_uncommitted."""

from typing import Any

from service import SERVERS

COMMON: dict[str, Any] = {
    "bootstrap_servers": SERVERS,
    "reconnect_backoff_ms": 10,  # shortens a trial
    "reconnect_backoff_max_ms": 50,  # shortens a trial
    "retry_backoff_ms": 20,  # shortens a trial
    "metrics_enabled": False,  # shortens a trial
}
PRODUCER = COMMON
CONSUMER: dict[str, Any] = {
    **COMMON,
    "group_id": "billing",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "session_timeout_ms": 6000,  # shortens a trial
    "heartbeat_interval_ms": 100,  # shortens a trial
    "fetch_max_wait_ms": 100,  # shortens a trial
}
