"""Stock clients that log in, commit a transaction and read its record in a group; what each said instead, if it could
not.

The settings of each are written as its users write them.
"""

import json
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from compat_tests.clients.stock_clients import run_kcat
from tests.common.threads import join

KCAT_LIST_S = 4
OAUTHBEARER = "OAUTHBEARER"
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
ROOT = pathlib.Path(__file__).parents[2]


@dataclass(frozen=True)
class Way:
    """The address, protocol and credentials of a client. Files are paths; "" is none.

    With `is_token` the user is the id of a delegation token, and the password its HMAC in base64.
    """

    servers: str
    protocol: str
    ca: str = ""
    certificate: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = ""
    is_token: bool = False
    token_file: str = ""
    """The file with the token of OAUTHBEARER; without one, the client makes a token for `user` that nobody signs."""
    has_bare_tokens: bool = False
    """Sarama logs in by version 0 of SaslHandshake, which knows no renewal."""
    renewal_ms: int = 1000
    """How long before the end of its session kafkajs renews it."""

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")


class Case(NamedTuple):
    """One run of a client. `topic` is the group and the transactional id, too.

    `is_kept`: a program in Java, Go or JavaScript sends one record only, by a producer that lasts for all such cases
    of the topic. The value that it says is how many connections this producer has opened.
    """

    way: Way
    topic: str
    value: str
    timeout_s: float
    is_kept: bool = False


class Said(NamedTuple):
    """The record's value that the client read, or its error: its name, and a text."""

    value: str = ""
    error: str = ""
    text: str = ""


def read_token(path: str) -> str:
    return pathlib.Path(path).read_text()


def java_settings(way: Way) -> dict[str, str]:
    settings = {"bootstrap.servers": way.servers, "security.protocol": way.protocol}
    if way.is_tls:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": way.ca}
    if way.certificate:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": way.certificate}
    if way.mechanism == OAUTHBEARER:
        claim = "" if way.token_file else f' unsecuredLoginStringClaim_sub="{way.user}"'
        settings["sasl.mechanism"] = OAUTHBEARER
        settings["sasl.jaas.config"] = f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required{claim};"
        if way.token_file:
            settings |= {
                "sasl.login.callback.handler.class": f"{OAUTH_PACKAGE}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": pathlib.Path(way.token_file).as_uri(),
            }
    elif way.mechanism:
        kind = "plain.Plain" if way.mechanism == "PLAIN" else "scram.Scram"
        token = ' tokenauth="true"' if way.is_token else ""
        settings["sasl.mechanism"] = way.mechanism
        settings["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{kind}LoginModule required "
            f'username="{way.user}" password="{way.password}"{token};'
        )
    return settings


def librdkafka_settings(way: Way) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": way.servers, "security.protocol": way.protocol}
    if way.is_tls:
        settings["ssl.ca.location"] = way.ca
    if way.certificate:
        settings |= {"ssl.certificate.location": way.certificate, "ssl.key.location": way.certificate}
    if way.mechanism == OAUTHBEARER and way.token_file:
        settings |= {
            "sasl.mechanism": OAUTHBEARER,
            "oauth_cb": lambda _: (read_token(way.token_file), time.time() + 60),
        }
    elif way.mechanism == OAUTHBEARER:
        settings |= {
            "sasl.mechanism": OAUTHBEARER,
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={way.user}",
        }
    elif way.mechanism:
        settings |= {
            "sasl.mechanism": way.mechanism,
            "sasl.username": way.user,
            "sasl.password": way.password,
        }
    return settings


def run_kcat_case(case: Case) -> Said:
    settings = {
        name: text for name, text in librdkafka_settings(case.way).items() if name != "bootstrap.servers"
    }
    options = [word for name, text in settings.items() for word in ("-X", f"{name}={text}")]
    servers = case.way.servers
    listed = run_kcat(servers, "-L", "-m", str(KCAT_LIST_S), *options, check=False)
    if listed.returncode:
        return _kcat_error(listed)
    transactional = ("-X", f"transactional.id={case.topic}")
    sent = run_kcat(
        servers, "-P", "-t", case.topic, *transactional, *options, input=case.value.encode(), check=False
    )
    if sent.returncode:
        return _kcat_error(sent)
    earliest = ("-X", "auto.offset.reset=earliest")
    read = run_kcat(servers, *options, *earliest, "-q", "-c", "1", "-G", case.topic, case.topic, check=False)
    return _kcat_error(read) if read.returncode else Said(read.stdout.decode().strip())


def _kcat_error(run: "subprocess.CompletedProcess[bytes]") -> Said:
    lines = run.stderr.decode(errors="replace").splitlines()
    [last] = [line for line in lines if line.startswith("% ERROR")][-1:] or [""]
    return Said("", last, "\n".join(lines))


class Program:
    """A program of another language, in a process that runs many cases side by side; `close` ends it."""

    def __init__(self, command: Sequence[str], settings: Callable[[Way], dict[str, str]]) -> None:
        self._settings = settings
        self._waiting: dict[str, Future[Said]] = {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._errors = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        self._errors.start()

    def __call__(self, case: Case) -> Said:
        """Run a case. Raises TimeoutError if the program says nothing."""
        asked = {
            "settings": self._settings(case.way),
            "topic": case.topic,
            "value": case.value,
            "timeout_ms": int(case.timeout_s * 1000),
            **({"kept": True} if case.is_kept else {}),
        }
        future: Future[Said] = Future()
        with self._lock:
            number = str(len(self._waiting))
            self._waiting[number] = future
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({**asked, "id": number}) + "\n")
            self._process.stdin.flush()
        return future.result(case.timeout_s + 60)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            self._waiting[said["id"]].set_result(
                Said(said.get("value", ""), said.get("error", ""), said.get("said", ""))
            )

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for _ in self._process.stderr:
            pass

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        join(self._reader)
        join(self._errors)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def plain_settings(way: Way) -> dict[str, str]:
    """Return the settings as the programs in Go, JavaScript and Python take them."""
    return {
        "Servers": way.servers,
        "Protocol": way.protocol,
        "Ca": way.ca,
        "Certificate": way.certificate,
        "Mechanism": way.mechanism,
        "User": way.user,
        "Password": way.password,
        **({"Token": "true"} if way.is_token else {}),
        "Token_file": way.token_file,
        **({"Bare": "true"} if way.has_bare_tokens else {}),
        "Renewal_ms": str(way.renewal_ms),
    }


CLIENTS = ("java", "confluent-kafka", "kafka-python", "aiokafka", "kcat", "franz-go", "sarama", "kafkajs")
