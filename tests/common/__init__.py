"""What `tests` and `compat_tests` have in common, and `bench` and `spark_it` with them: bytes of records and requests,
certificates, a real Kafka, processes. It knows nothing of theirs (`make lint`).
"""
