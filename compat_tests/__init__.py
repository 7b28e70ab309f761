"""One suite, two targets: oncelog and a real Apache Kafka, by stock clients and by hand-made requests."""
