"""Marks of tests in which Kafka reads what oncelog has written, by what of the product writes it.

Such a test runs again when that has changed since Kafka read it (tests/common/recorded).
"""

import pytest

_BATCHES = (
    "wire/batch.py",
    "wire/batch_builder.py",
    "wire/compression.py",
    "wire/control.py",
    "wire/records.py",
)
_LOG = (*_BATCHES, "broker/log")
_METADATA = ("wire/stored/metadata.py", "broker/metadata")

LOG = pytest.mark.exchanges(*_LOG)
METADATA = pytest.mark.exchanges(*_BATCHES, *_METADATA)
GROUPS = pytest.mark.exchanges(*_LOG, *_METADATA, "wire/stored", "coordinator/groups")
TRANSACTIONS = pytest.mark.exchanges(*_LOG, *_METADATA, "wire/stored", "coordinator/transactions")
SHARE = pytest.mark.exchanges(*_LOG, *_METADATA, "wire/stored", "coordinator/groups", "coordinator/share")
SNAPSHOTS = pytest.mark.exchanges(
    *_LOG, *_METADATA, "wire/stored", "coordinator/transactions", "broker/control"
)
EVERYTHING = pytest.mark.exchanges(*_LOG, *_METADATA, "wire/stored", "coordinator")
