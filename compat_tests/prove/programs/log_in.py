"""A job that logs in as its variables say, with the client that its argument names, and copies the orders."""

import asyncio
import os
import ssl
import sys
from typing import Any

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
PROTOCOL, MECHANISM, USER, PASSWORD = (
    os.environ[name]
    for name in (
        "KAFKA_SECURITY_PROTOCOL",
        "KAFKA_SASL_MECHANISM",
        "KAFKA_SASL_USERNAME",
        "KAFKA_SASL_PASSWORD",
    )
)
AUTHORITY = os.environ.get("KAFKA_SSL_CA_LOCATION")
GROUP, ORDERS = "billing", 10


def with_confluent_kafka() -> None:
    from confluent_kafka import Consumer, Producer

    login = {
        "bootstrap.servers": SERVERS,
        "security.protocol": PROTOCOL,
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        **({"ssl.ca.location": AUTHORITY} if AUTHORITY else {}),
    }
    consumer = Consumer({**login, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    producer = Producer(login)
    for _ in range(ORDERS):
        while (order := consumer.poll(1)) is None:
            pass
        producer.produce("receipts", order.value(), order.key())
    producer.flush()
    consumer.close()


async def _with_aiokafka() -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    login: dict[str, Any] = {
        "bootstrap_servers": SERVERS,
        "security_protocol": PROTOCOL,
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        **({"ssl_context": ssl.create_default_context(cafile=AUTHORITY)} if AUTHORITY else {}),
    }
    consumer = AIOKafkaConsumer("orders", group_id=GROUP, auto_offset_reset="earliest", **login)
    async with consumer, AIOKafkaProducer(**login) as producer:
        for _ in range(ORDERS):
            order = await consumer.getone()
            await producer.send_and_wait("receipts", order.value, order.key)


def with_aiokafka() -> None:
    asyncio.run(_with_aiokafka())


if __name__ == "__main__":
    {"confluent-kafka": with_confluent_kafka, "aiokafka": with_aiokafka}[sys.argv[1]]()
