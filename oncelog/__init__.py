"""oncelog: a Kafka-compatible broker in one Python process.

This package is what programs import; the packages below it are its inside and may change. `wire`, `coordinator`,
`broker` and `spark` stand at the top of the repository (`spark` as `spark_it/sink`); links lead there from here.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
