"""Runs a Python client: takes cases from standard input, a JSON object a line, and prints a line for each.

The only argument is the client.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from typing import Any

import aiokafka.abc
import kafka.net.sasl.oauth

from compat_tests.security.logged_in_clients import (
    OAUTHBEARER,
    Case,
    Said,
    Way,
    librdkafka_settings,
    read_token,
)


class KafkaTokenFile(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc,unused-ignore]
    """A file with a token, for kafka-python."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def token(self) -> str:
        return read_token(self.path)


class AioTokenFile(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc,unused-ignore]
    """A file with a token, for aiokafka."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def token(self) -> str:
        return read_token(self.path)


def kafka_python_settings(way: Way) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": way.servers, "security_protocol": way.protocol}
    if way.is_tls:
        settings["ssl_cafile"] = way.ca
    if way.certificate:
        settings["ssl_certfile"] = way.certificate
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
    if way.mechanism == OAUTHBEARER:
        settings["sasl_oauth_token_provider"] = KafkaTokenFile(way.token_file)
    elif way.mechanism:
        settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
    return settings


def aiokafka_settings(way: Way) -> dict[str, Any]:
    from aiokafka.helpers import create_ssl_context  # type: ignore[import-untyped,unused-ignore]

    settings: dict[str, Any] = {"bootstrap_servers": way.servers, "security_protocol": way.protocol}
    if way.is_tls:
        settings["ssl_context"] = create_ssl_context(cafile=way.ca, certfile=way.certificate or None)
    if way.mechanism:
        settings["sasl_mechanism"] = way.mechanism
    if way.mechanism == OAUTHBEARER:
        settings["sasl_oauth_token_provider"] = AioTokenFile(way.token_file)
    elif way.mechanism:
        settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
    return settings


def run_confluent(case: Case) -> Said:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

    said: list[KafkaError] = []

    def on_error(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the error before it says why
            said.append(error)

    settings = {**librdkafka_settings(case.way), "error_cb": on_error, "log_level": 0}
    producer = Producer({**settings, "transactional.id": case.topic})
    end = time.monotonic() + case.timeout_s
    try:
        while not said:
            try:
                producer.init_transactions(0.5)
                break
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > end:
                    raise
                producer.poll(0)
        if said:
            return Said("", said[0].name(), said[0].str())
        producer.begin_transaction()
        producer.produce(case.topic, case.value)
        producer.commit_transaction(case.timeout_s)
    except KafkaException as error:
        return Said("", error.args[0].name(), error.args[0].str())
    consumer = Consumer({**settings, "group.id": case.topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([case.topic])
    message = consumer.poll(case.timeout_s)
    consumer.close()
    if message is None or message.error():
        return Said("", "no record", repr(message and message.error()))
    return Said((message.value() or b"").decode())


def run_kafka_python(case: Case) -> Said:
    from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped,unused-ignore]

    settings = kafka_python_settings(case.way)
    timeout_ms = int(case.timeout_s * 1000)
    try:
        producer = KafkaProducer(
            **settings, transactional_id=case.topic, max_block_ms=timeout_ms, bootstrap_timeout_ms=timeout_ms
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(case.topic, case.value.encode())
            producer.commit_transaction()
        finally:
            producer.close(0)
        consumer = KafkaConsumer(
            case.topic,
            **settings,
            group_id=case.topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            consumer_timeout_ms=timeout_ms,
        )
        try:
            for record in consumer:
                return Said(record.value.decode())
        finally:
            consumer.close()
    except Exception as error:  # the client's, of many kinds
        return Said("", type(error).__name__, str(error))
    return Said("", "no record")


def run_aiokafka(case: Case) -> Said:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped,unused-ignore]

    async def run() -> str:
        settings = aiokafka_settings(case.way)
        producer = AIOKafkaProducer(**settings, transactional_id=case.topic)
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(case.topic, case.value.encode())
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            case.topic,
            **settings,
            group_id=case.topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            return str((await consumer.getone()).value, "utf-8")
        finally:
            await consumer.stop()

    async def limited() -> str:
        return await asyncio.wait_for(run(), case.timeout_s)

    try:
        return Said(asyncio.run(limited()))
    except Exception as error:  # the client's, of many kinds
        return Said("", type(error).__name__, str(error))


CLIENTS = {"confluent-kafka": run_confluent, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka}


def main(name: str) -> None:
    printing = threading.Lock()

    def answer(asked: dict[str, Any]) -> None:
        way = Way(**{field.lower(): text for field, text in asked["settings"].items()})
        said = CLIENTS[name](Case(way, asked["topic"], asked["value"], asked["timeout_ms"] / 1000))
        row = {"id": asked["id"], "value": said.value, "error": said.error, "said": said.text}
        with printing:
            print(json.dumps(row), flush=True)

    for line in sys.stdin:
        threading.Thread(target=answer, args=[json.loads(line)]).start()


if __name__ == "__main__":
    main(sys.argv[1])
