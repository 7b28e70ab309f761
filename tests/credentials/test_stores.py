"""Key stores and trust stores of each type; those of Java are made by its ``keytool``."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from oncelog.broker.credentials.stores import StoreError, load_key_store, load_trust_store
from oncelog.broker.seams.tls import load_certificate, new_server_context, read_file
from tests.common.certificates import Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.identity("server")
SECRET = "a secret"


def keytool(*arguments: str) -> None:
    if shutil.which("keytool") is None:
        pytest.skip("no keytool: it comes with Java")
    done = subprocess.run(["keytool", *arguments], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout


def encrypted(key: bytes, password: str) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )


def test_pem_in_the_configuration() -> None:
    store = load_key_store(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": SERVER.key.decode().replace("\n", " "),
            "ssl.keystore.certificate.chain": SERVER.chain.decode(),
        },
        read_file,
    )
    assert store is not None
    assert store.certificate == SERVER.certificate
    load_certificate(new_server_context(), store.key, store.chain)


@pytest.mark.parametrize("password", [None, SECRET])
def test_pem_in_a_file(tmp_path: Path, password: str | None) -> None:
    key = SERVER.key if password is None else encrypted(SERVER.key, password)
    (tmp_path / "server.pem").write_bytes(b"Bag Attributes: none\n" + key + SERVER.chain)
    values = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "ssl.key.password": password,
    }
    store = load_key_store(values, read_file)
    assert store is not None
    assert (store.key, store.chain) == (SERVER.key, SERVER.chain)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "said"), [("JKS", "JKS"), ("PKCS12", "PKCS12"), ("PKCS12", "JKS"), ("JKS", "PKCS12")]
)
def test_key_stores_of_keytool(tmp_path: Path, made: str, said: str) -> None:
    path = str(tmp_path / "store")
    keytool(
        *("-genkeypair", "-alias", "me", "-keyalg", "RSA", "-dname", "CN=me,O=Tests", "-validity", "9"),
        *("-keystore", path, "-storetype", made, "-storepass", SECRET),
        *(("-keypass", "another one") if made == "JKS" else ()),
    )
    values = {
        "ssl.keystore.type": said,
        "ssl.keystore.location": path,
        "ssl.keystore.password": SECRET,
        "ssl.key.password": "another one" if made == "JKS" else None,
    }
    store = load_key_store(values, read_file)
    assert store is not None
    assert store.certificate.subject.rfc4514_string() == "CN=me,O=Tests"
    load_certificate(new_server_context(), store.key, store.chain)
    for wrong in ({"ssl.keystore.password": "wrong"}, {"ssl.key.password": "wrong"} if made == "JKS" else {}):
        if wrong:
            with pytest.raises(StoreError, match="password") as raised:
                load_key_store({**values, **wrong}, read_file)
            assert SECRET not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("made", ["JKS", "PKCS12"])
def test_trust_stores_of_keytool(tmp_path: Path, made: str) -> None:
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem)
    path = str(tmp_path / "store")
    for alias in ("one", "two"):
        keytool(
            *("-importcert", "-noprompt", "-alias", alias, "-file", str(tmp_path / "ca.pem")),
            *("-keystore", path, "-storetype", made, "-storepass", SECRET),
        )
    values = {"ssl.truststore.type": made, "ssl.truststore.location": path, "ssl.truststore.password": SECRET}
    assert load_trust_store(values, read_file) == [AUTHORITY.certificate] * 2
    with pytest.raises(StoreError, match="password"):
        load_trust_store({**values, "ssl.truststore.password": "wrong"}, read_file)


def test_a_trust_store_of_pem(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem + Authority("other").pem)
    values: dict[str, str | None] = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    found = load_trust_store(values, read_file)
    assert found is not None
    assert len(found) == 2
    inline: dict[str, str | None] = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.pem.decode(),
    }
    assert load_trust_store(inline, read_file) == [AUTHORITY.certificate]
    assert load_trust_store({}, read_file) is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ssl.keystore.type": "PKCS11"}, "ssl.keystore.type=PKCS11: expected one of PEM, PKCS12, JKS"),
        ({"ssl.keystore.key": "x"}, "need ssl.keystore.type=PEM, which is JKS"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "x"}, "ssl.keystore.certificate.chain is missing"),
        ({"ssl.keystore.password": "x"}, "no ssl.keystore.location"),
        ({"ssl.keystore.location": "x"}, "cannot read x: No such file"),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": SERVER.key.decode() * 2,
                "ssl.keystore.certificate.chain": SERVER.chain.decode(),
            },
            "expected one PRIVATE KEY (PKCS #8) in ssl.keystore.key, but found 2",
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": SERVER.key.decode(),
                "ssl.keystore.certificate.chain": AUTHORITY.pem.decode(),
            },
            "the certificate in ssl.keystore.key does not fit the private key",
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": encrypted(SERVER.key, "x").decode(),
                "ssl.keystore.certificate.chain": SERVER.chain.decode(),
            },
            "is encrypted: set ssl.key.password",
        ),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, str | None], said: str) -> None:
    with pytest.raises(StoreError) as raised:
        load_key_store(values, read_file)
    assert said in str(raised.value)


def test_the_wrong_format_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    key = serialization.load_pem_private_key(SERVER.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    path.write_bytes(key + SERVER.chain)
    with pytest.raises(StoreError, match=r"server.pem is PEM, not JKS: set ssl\.keystore\.type=PEM"):
        load_key_store({"ssl.keystore.location": str(path)}, read_file)
    with pytest.raises(StoreError, match=r"is PEM, not PKCS12: set ssl\.truststore\.type=PEM"):
        load_trust_store({"ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(path)}, read_file)
    with pytest.raises(
        StoreError, match="openssl pkcs8 -topk8 -nocrypt makes one of the EC PRIVATE KEY there"
    ):
        load_key_store({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}, read_file)


def test_a_damaged_java_key_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for content in (b"\xfe\xed\xfe\xed", b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1", b"", b"0\x82"):
        path.write_bytes(content)
        values = {"ssl.truststore.location": str(path), "ssl.truststore.password": None}
        with pytest.raises(StoreError, match="cannot use the trust store"):
            load_trust_store(values, read_file)


def test_the_certificate_of_a_context_can_be_replaced() -> None:
    context = new_server_context()
    for identity in (SERVER, AUTHORITY.identity("next")):
        load_certificate(context, identity.key, identity.chain)
    assert context.verify_mode == ssl.CERT_NONE
