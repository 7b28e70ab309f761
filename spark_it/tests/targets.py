"""Which tests run on which target, so that `make test` takes minutes: the longest run on Kafka on demand only."""

import os

import pytest

ALL = bool(os.environ.get("SPARK_IT_ALL"))
LONG = ("oncelog", "kafka") if ALL else ("oncelog",)
# A test that takes so long that the second target waits for SPARK_IT_ALL=1.
long_on_kafka = pytest.mark.parametrize("target", LONG, indirect=True)
# What is the lake's alone needs no second broker.
only_oncelog = pytest.mark.parametrize("target", ["oncelog"], indirect=True)
