"""The facts about messages that every test reads are those of Kafka's jars."""

import pathlib

from tests.common.kafka_definitions import FILE, definitions, from_jars, lines


def test_the_facts_are_kafkas(kafka_libs: pathlib.Path) -> None:
    kafkas = from_jars(kafka_libs)
    assert FILE.read_text().splitlines() == list(lines(kafkas))
    assert definitions().keys() == kafkas.keys()
