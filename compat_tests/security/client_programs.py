"""The eight stock clients as something that runs a `Case`; all but kcat in a process that runs many side by side."""

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator

from compat_tests.control.programs import go_program, java_program, javascript_program
from compat_tests.security.logged_in_clients import (
    Case,
    Program,
    Said,
    java_settings,
    plain_settings,
    run_kcat_case,
)

PROGRAMS = pathlib.Path(__file__).parent / "programs"
PYTHON = ("confluent-kafka", "kafka-python", "aiokafka")
KCAT, JAVA, KAFKAJS = "kcat", "java", "kafkajs"


@contextlib.contextmanager
def running(client: str, folder: pathlib.Path, *jvm_options: str) -> Iterator[Callable[[Case], Said]]:
    """Run cases with this client. `folder` keeps what is built, for several clients. Raises RealPartMissing."""
    if client == KCAT:
        yield run_kcat_case
        return
    settings = java_settings if client == JAVA else plain_settings
    program = Program(_command(client, folder, jvm_options), settings)
    try:
        yield program
    finally:
        program.close()


def _command(client: str, folder: pathlib.Path, jvm_options: tuple[str, ...]) -> list[str]:
    if client in PYTHON:
        return [sys.executable, "-m", "compat_tests.security.python_client", client]
    if client == KAFKAJS:
        return javascript_program(_made(folder / KAFKAJS), PROGRAMS / "client.mjs")
    if client == JAVA:
        first, *rest = java_program(_made(folder / JAVA), PROGRAMS / "LoggedInClient.java")
        return [first, *jvm_options, *rest]
    return [*go_program(_made(folder / "go"), PROGRAMS / "go"), client]


def _made(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    return folder
