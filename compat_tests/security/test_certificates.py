"""Key stores of every type, names by mapping rules, cipher suites, and certificates replaced by kafka-configs: oncelog
serves what a real Kafka serves with the same files and settings.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from compat_tests.brokers import TARGETS, UNDISTURBED, UNDISTURBED_KAFKA, Broker, checked, make_broker
from compat_tests.differential import Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import AUTHORIZER
from compat_tests.security.test_configs_tool import FRAME
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from tests.common.batches import WAIT_MS, now_ms
from tests.common.certificates import Authority, Identity
from tests.common.jars import require, run_tool
from tests.common.process import free_ports
from tests.common.recorded.recorder import Recorder
from tests.common.sasl_client import SaslClient

pytestmark = pytest.mark.slow

SECRET, OTHER_SECRET = "the-secret", "another-secret"
STORES = ("PEM", "INLINE", "PKCS12", "JKS")
LISTENERS = (*STORES, "SUITES", "NAMED", "FREE")
SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
OTHER_SUITES = ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES128-SHA")
TOPIC = "of-app"
TIMEOUT_S = 20


class Files:
    """An authority, and stores with keys that it has signed, in a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.serials: dict[str, int] = {}
        (folder / "ca.pem").write_bytes(self.authority.pem)
        for name in ("server", "second", "third"):
            self.write(name, self.authority.identity("server"))
        self.write("other", self.authority.identity("other"))
        self.write("nameless", self.authority.identity("server", alternatives=["127.0.0.1"]))
        self.write("app", self.authority.identity("App"))
        self.write("stranger", Authority("strangers").identity("App"))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write(self, name: str, identity: Identity) -> None:
        (self.folder / f"{name}.pem").write_bytes(identity.key + identity.chain)
        self.serials[name] = identity.certificate.serial_number

    def make_stores(self) -> dict[str, str]:
        """Make stores of PKCS12 and JKS. Returns the properties of the listeners."""
        found: dict[str, str] = {}
        for listener in STORES:
            identity = self.authority.identity("server")
            self.serials[listener] = identity.certificate.serial_number
            self.write(listener, identity)
            prefix = f"listener.name.{listener.lower()}.ssl."
            stored = getattr(self, f"_{listener.lower()}")(identity)
            found |= {prefix + key: text for key, text in stored.items()}
            found[f"{prefix}client.auth"] = "required"
        for listener in LISTENERS[len(STORES) :]:
            prefix = f"listener.name.{listener.lower()}.ssl."
            found |= {
                f"{prefix}keystore.type": "PEM",
                f"{prefix}keystore.location": self.path("server.pem"),
                f"{prefix}truststore.type": "PEM",
                f"{prefix}truststore.location": self.path("ca.pem"),
            }
        return found

    def _pem(self, identity: Identity) -> dict[str, str]:
        return {
            "keystore.type": "PEM",
            "keystore.location": self.path("PEM.pem"),
            "truststore.type": "PEM",
            "truststore.location": self.path("ca.pem"),
        }

    def _inline(self, identity: Identity) -> dict[str, str]:
        return {
            "keystore.type": "PEM",
            "keystore.key": identity.key.decode(),
            "keystore.certificate.chain": identity.chain.decode(),
            "truststore.type": "PEM",
            "truststore.certificates": self.authority.pem.decode(),
        }

    def _pkcs12(self, identity: Identity) -> dict[str, str]:
        return {
            "keystore.type": "PKCS12",
            "keystore.location": self._write_pkcs12(identity, "server.p12"),
            "keystore.password": SECRET,
            **self._trust("PKCS12"),
        }

    def _jks(self, identity: Identity) -> dict[str, str]:
        keytool(
            *("-importkeystore", "-srckeystore", self._write_pkcs12(identity, "source.p12")),
            *("-destkeystore", self.path("server.jks"), "-deststoretype", "JKS", "-srcalias", "me"),
            *("-srcstorepass", SECRET, "-deststorepass", SECRET, "-destkeypass", OTHER_SECRET),
        )
        return {
            "keystore.type": "JKS",
            "keystore.location": self.path("server.jks"),
            "keystore.password": SECRET,
            "key.password": OTHER_SECRET,
            **self._trust("JKS"),
        }

    def _write_pkcs12(self, identity: Identity, name: str) -> str:
        store = pkcs12.serialize_key_and_certificates(
            b"me",
            identity.private_key,
            identity.certificate,
            [self.authority.certificate],
            BestAvailableEncryption(SECRET.encode()),
        )
        (self.folder / name).write_bytes(store)
        return self.path(name)

    def _trust(self, kind: str) -> dict[str, str]:
        path = self.path(f"trusted.{kind.lower()}")
        keytool(
            *("-importcert", "-noprompt", "-alias", "ca", "-file", self.path("ca.pem")),
            *("-keystore", path, "-storetype", kind, "-storepass", SECRET),
        )
        return {"truststore.type": kind, "truststore.location": path, "truststore.password": SECRET}


def keytool(*arguments: str) -> None:
    try:
        done = subprocess.run(["keytool", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        require("no keytool: it comes with Java")
    assert not done.returncode, done.stdout


class Target:
    """A broker, and where its listeners are."""

    def __init__(self, name: str, files: Files, stores: dict[str, str]) -> None:
        self.name = name
        self.files = files
        ports = free_ports(len(LISTENERS))
        self.addresses = dict(zip(LISTENERS, ports, strict=True))
        newline = "\\n" if name == "kafka" else "\n"  # in a properties file, or in an argument
        own = "RULE:^CN=([A-Za-z]*),.*$/$1/L,DEFAULT"
        protocols = [f"{one}:SSL" for one in LISTENERS] + ["PLAINTEXT:PLAINTEXT"]
        protocols += ["CONTROLLER:PLAINTEXT"] if name == "kafka" else []
        self.broker: Broker = make_broker(
            name,
            {
                **UNDISTURBED,
                **(UNDISTURBED_KAFKA if name == "kafka" else {}),
                "listeners": ",".join(f"{one}://127.0.0.1:{port}" for one, port in self.addresses.items()),
                "listener.security.protocol.map": ",".join(protocols),
                # Of certificates in one line, with spaces in place of the line ends, Kafka takes the last one only.
                **{key: text.replace("\n", newline) for key, text in stores.items()},
                "listener.name.suites.ssl.cipher.suites": ",".join(SUITES),
                "listener.name.named.ssl.client.auth": "required",
                "listener.name.named.ssl.principal.mapping.rules": own,
                "listener.name.free.ssl.allow.dn.changes": "true",
                "listener.name.free.ssl.allow.san.changes": "true",
                "authorizer.class.name": AUTHORIZER,
                "super.users": "User:ANONYMOUS",
            },
        )

    def shown(
        self, listener: str, certificate: str | None = "app", suites: str | None = None
    ) -> tuple[int, str]:
        """The serial number that a listener shows, and the suite. Raises OSError, AssertionError if it lets not in."""
        context = ssl.create_default_context(cafile=self.files.path("ca.pem"))
        if certificate:
            context.load_cert_chain(self.files.path(f"{certificate}.pem"))
        if suites:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(f"{suites}:@SECLEVEL=0")
        address = ("127.0.0.1", self.addresses[listener])
        with (
            socket.create_connection(address, timeout=TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(bytes.fromhex("0000000a0012000000000007ffff"))
            assert secured.recv(4)
            shown, cipher = secured.getpeercert(), secured.cipher()
            assert shown
            assert cipher
            return int(str(shown["serialNumber"]), 16), cipher[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def both(files: Files) -> Iterator[OnDemand[Target]]:
    stores = files.make_stores()

    @contextlib.contextmanager
    def make(name: str) -> Iterator[Target]:
        target = Target(name, files, stores)
        with target.broker, checked(target.broker):
            yield target

    with OnDemand(make) as found:
        yield found


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("listener", STORES)
def test_stores(both: OnDemand[Target], listener: str, name: str) -> None:
    """Its key store has the certificate that clients see, its trust store the authority of theirs."""
    target = both[name]
    assert target.shown(listener)[0] == target.files.serials[listener]
    with pytest.raises((OSError, AssertionError)):
        target.shown(listener, "stranger")
    with pytest.raises((OSError, AssertionError)):
        target.shown(listener, None)


@pytest.mark.parametrize("name", TARGETS)
def test_suites(both: OnDemand[Target], name: str) -> None:
    def agrees(suite: str) -> bool:
        try:
            return both[name].shown("SUITES", None, suite)[1] == suite
        except ssl.SSLError:
            return False

    assert {suite for suite in (*SUITES.values(), *OTHER_SUITES) if agrees(suite)} == set(SUITES.values())


@pytest.mark.parametrize("name", TARGETS)
def test_the_node_that_a_client_means(both: OnDemand[Target], name: str) -> None:
    """It is checked with the client's first request (KIP-1242): TLS is a log-in of its own."""
    target = both[name]
    session = Session(target.broker.bootstrap)
    own = session.call_unobserved("DescribeCluster", 2)["cluster_id"]
    session.end()
    context = ssl.create_default_context(cafile=target.files.path("ca.pem"))
    context.load_cert_chain(target.files.path("app.pem"))
    with SaslClient(f"127.0.0.1:{target.addresses['NAMED']}", context) as client:
        for cluster_id, node_id, error in ((own, 1, 0), (own, 2, 129), ("other", 1, 129), (own, -1, 42)):
            request = ApiVersionsRequest("x", "1", cluster_id, node_id)
            assert client.call(request, 5).error_code == error


@pytest.mark.parametrize("name", TARGETS)
def test_a_name_by_a_rule(both: OnDemand[Target], name: str) -> None:
    """CN=App,O=Tests is app where a rule says so, and may see what app may; at another listener it may not."""
    target = both[name]
    session = Session(target.broker.bootstrap)
    session.topic(TOPIC)
    creation = {
        "resource_type": 2,
        "resource_name": TOPIC,
        "resource_pattern_type": 3,
        "principal": "User:app",
        "host": "*",
        "operation": 8,
        "permission_type": 3,
    }
    made = session.call_unobserved("CreateAcls", 3, {"creations": [creation]})
    assert [row["error_code"] for row in made["results"]] == [0]
    session.end()

    def topics(listener: str) -> set[str]:
        client = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{target.addresses[listener]}",
                "security.protocol": "SSL",
                "ssl.ca.location": target.files.path("ca.pem"),
                "ssl.certificate.location": target.files.path("app.pem"),
                "ssl.key.location": target.files.path("app.pem"),
            }
        )
        return set(client.list_topics(timeout=TIMEOUT_S).topics)

    deadline = now_ms() + WAIT_MS
    while topics("NAMED") != {TOPIC}:  # Kafka's broker learns of the ACL after the response
        assert now_ms() < deadline
    assert topics("PEM") == set()


# -- certificates that are replaced

PLACE, FREE = "listener.name.pem.ssl.keystore.location", "listener.name.free.ssl.keystore.location"
STEPS: dict[str, tuple[str, str, str]] = {
    "a new file": ("PEM", f"{PLACE}=second.pem", "second"),
    "a new content": ("PEM", f"{PLACE}=second.pem", "third"),
    "another name": ("PEM", f"{PLACE}=other.pem", "third"),
    "fewer alternative names": ("PEM", f"{PLACE}=nameless.pem", "third"),
    "no such file": ("PEM", f"{PLACE}=nothing.pem", "third"),
    "a file without a key": ("PEM", f"{PLACE}=ca.pem", "third"),
    "not for one listener": ("PEM", "ssl.keystore.location=second.pem", "third"),
    "a key without effect while the listener is open": (
        "PEM",
        "listener.name.pem.ssl.client.auth=none",
        "third",
    ),
    "another name, allowed": ("FREE", f"{FREE}=other.pem", "other"),
    "other alternative names, allowed": ("FREE", f"{FREE}=nameless.pem", "nameless"),
    "taken back": ("FREE", FREE, "server"),
}
"""A listener, what is set, and the certificate that the listener shows afterwards."""
REFUSED = {
    "another name": "Keystore DistinguishedName does not match",
    "fewer alternative names": "Keystore SubjectAltNames do not match",
    "no such file": "",
    "a file without a key": "",
    "not for one listener": "These security configs can be dynamically updated only per-listener",
}


def sorted_names(found: re.Match[str]) -> str:
    """Names that Kafka has in a set, such as ``[2, localhost], [7, 127.0.0.1]``."""
    return ", ".join(sorted(re.findall(r"\[.*?\]", found[0])))


def run_steps(target: Target) -> dict[str, tuple[int, str]]:
    """By step the exit code and what is said, once the certificate that is expected is shown."""
    files = target.files
    folder = files.folder / target.name
    folder.mkdir(exist_ok=True)
    for file in files.folder.glob("*.pem"):
        (folder / file.name).write_bytes(file.read_bytes())
    entity = ("--bootstrap-server", target.broker.bootstrap, "--entity-type", "brokers", "--entity-name", "1")
    found = {}
    for step, (listener, change, expected) in STEPS.items():
        if step == "a new content":
            (folder / "second.pem").write_bytes((folder / "third.pem").read_bytes())
        setting = re.sub(r"=(\w+\.pem)", lambda match: f"={folder / match[1]}", change)
        words = ("--add-config", setting) if "=" in change else ("--delete-config", setting)
        run = run_tool("org.apache.kafka.tools.ConfigCommand", *entity, "--alter", *words, check=False)
        deadline = now_ms() + WAIT_MS
        while target.shown(listener)[0] != files.serials[expected]:
            assert now_ms() < deadline, (target.name, step, run.stdout + run.stderr)
        said = FRAME.sub("", run.stdout + run.stderr).replace(str(folder), "FOLDER")
        said = said.replace(target.broker.bootstrap, "BOOTSTRAP").strip()
        said = re.sub(r"(?<=SAN=\[)\[.*?\](?=\])", sorted_names, said)
        found[step] = run.returncode, said
    return found


def test_certificates_are_replaced(answers: Recorder, both: OnDemand[Target]) -> None:
    found = answers.both(lambda name: run_steps(both[name]))
    oncelog, kafka = found["oncelog"], found["kafka"]
    for step in STEPS:
        assert (kafka[step][0] != 0) == (step in REFUSED), kafka[step]
        assert oncelog[step][0] == kafka[step][0], (step, oncelog[step])
        if step in REFUSED:
            assert REFUSED[step] in kafka[step][1], step
            assert REFUSED[step] in oncelog[step][1], step
            assert "BEGIN" not in oncelog[step][1], step
        else:
            assert oncelog[step][1] == kafka[step][1], step
