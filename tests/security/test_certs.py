"""``oncelog certs``: certificates for development that a broker and a client take."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

import oncelog
from tests.common.certificates import SIGNING
from tests.security.test_tls import shake_hands


def certs(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncelog", "certs", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, umask=0o022)


def test_a_broker_and_a_client_take_them(tmp_path: Path) -> None:
    made = certs(str(tmp_path), "--client", "app")
    assert (made.returncode, made.stderr) == (0, "")
    assert {path.name: oct(path.stat().st_mode)[-3:] for path in tmp_path.iterdir()} == {
        "ca.pem": "644",
        "server.pem": "600",
        "client.pem": "600",
    }
    config = dict(re.findall(r"-c ([a-z.]+)=(\S+)", made.stdout))
    assert config["ssl.client.auth"] == "requested"
    context = strict_context(tmp_path / "ca.pem")
    context.load_cert_chain(tmp_path / "client.pem")
    with oncelog.Broker(config={**config, "listeners": "SSL://127.0.0.1:0"}) as kafka:
        assert shake_hands(kafka, context) == "TLSv1.3"
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "client.pem"),
            "ssl.key.location": str(tmp_path / "client.pem"),
        }
        assert AdminClient(client).list_topics(timeout=60).brokers
        for line in made.stdout.splitlines():
            if "location=" in line and "-c " not in line:
                assert os.path.exists(line.split("=")[1]), line


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("mine")
    made = certs(str(tmp_path))
    assert made.returncode == 1
    assert (
        made.stderr
        == f"oncelog: {tmp_path}/server.pem is there already: remove it, or take another directory\n"
    )
    assert os.listdir(tmp_path) == ["server.pem"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = certs(str(tmp_path / "file" / "deeper"))
    assert (made.returncode, made.stdout) == (1, "")
    assert "cannot write to" in made.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "oncelog: the following arguments are required: DIR; see oncelog certs --help"),
        (("a", "b"), "oncelog: unrecognized arguments: b; see oncelog certs --help"),
        (("a", "--name"), "oncelog: --name needs a value; see oncelog certs --help"),
        (("a", "--ca", ""), "oncelog: --ca needs a value; see oncelog certs --help"),
        (
            ("a", "--ca-key", "x"),
            "oncelog: --ca-key needs --ca, the file of the authority's certificate; see oncelog certs --help",
        ),
        (
            ("a", "--ca", "x", "--ca-key", "x"),
            "oncelog: --ca and --ca-key are the same file: leave --ca-key out; see oncelog certs --help",
        ),
        (
            ("a", "--days", "3", "--not-after", "2030-01-01"),
            "oncelog: --days and --not-after exclude each other; see oncelog certs --help",
        ),
        (("a", "--days", "x"), "oncelog: --days x: expected a number of days; see oncelog certs --help"),
        (("a", "--days", "1e9"), "oncelog: --days 1e9: expected a number of days; see oncelog certs --help"),
        (
            ("a", "--not-after", "1.1.2030"),
            "oncelog: --not-after 1.1.2030: expected a date such as 2026-11-22; see oncelog certs --help",
        ),
        (
            ("a", "--not-before", "2030-01-01", "--not-after", "2029-01-01"),
            "oncelog: the certificates would end (2029-01-01T00:00:00Z) before they begin (2030-01-01T00:00:00Z)",
        ),
        (
            ("a", "--not-before", "1900-01-01"),
            "oncelog: no certificate can be valid from 1900-01-01T00:00:00Z on, before the year 1950",
        ),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(arguments: tuple[str, ...], line: str) -> None:
    refused = certs(*arguments)
    assert (refused.returncode, refused.stdout, refused.stderr.splitlines()) == (2, "", [line])


# -- an authority that is kept


def verify(ca: Path, certificate: Path) -> None:
    """Raises if the certificate is not the authority's, whenever it is valid."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.read_bytes()))


def valid_at(path: Path) -> tuple[datetime, datetime]:
    found = x509.load_pem_x509_certificate(path.read_bytes())
    return found.not_valid_before_utc, found.not_valid_after_utc


@pytest.mark.slow
@pytest.mark.parametrize("with_key_file", [False, True])
def test_a_later_run_uses_the_authority_again(tmp_path: Path, with_key_file: bool) -> None:
    kept = ["--ca", str(tmp_path / "kept" / "authority.pem")]
    if with_key_file:
        kept += ["--ca-key", str(tmp_path / "kept" / "authority.key")]
    for name in ("one", "two"):
        made = certs(str(tmp_path / name), "--client", name, *kept)
        assert (made.returncode, made.stderr) == (0, "")
    assert (tmp_path / "one" / "ca.pem").read_bytes() == (tmp_path / "two" / "ca.pem").read_bytes()
    assert b"PRIVATE" not in (tmp_path / "two" / "ca.pem").read_bytes()
    assert {path.name: oct(path.stat().st_mode)[-3:] for path in (tmp_path / "kept").iterdir()} == (
        {"authority.pem": "644", "authority.key": "600"} if with_key_file else {"authority.pem": "600"}
    )
    context = ssl.create_default_context(cafile=str(tmp_path / "one" / "ca.pem"))
    context.load_cert_chain(tmp_path / "two" / "client.pem")
    config = dict(re.findall(r"-c ([a-z.]+)=(\S+)", certs(str(tmp_path / "three"), *kept).stdout))
    with oncelog.Broker(
        config={**config, "listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required"}
    ) as kafka:
        assert shake_hands(kafka, context) == "TLSv1.3"


@pytest.mark.slow
def test_the_clients_file_may_be_the_one_that_is_kept(tmp_path: Path) -> None:
    ca, key = tmp_path / "certs" / "ca.pem", tmp_path / "ca.key"
    kept = ("--ca", str(ca), "--ca-key", str(key))
    refused = certs(str(tmp_path / "certs"), "--ca", str(ca))
    assert refused.stderr == (
        f"oncelog: {ca} is what clients are given, and must not have the authority's key: keep it elsewhere, or add "
        "--ca-key FILE\n"
    )
    assert certs(str(tmp_path / "certs"), *kept).returncode == 0
    content = ca.read_bytes()
    for name in ("server.pem", "client.pem"):
        (tmp_path / "certs" / name).unlink()
    assert certs(str(tmp_path / "certs"), *kept).returncode == 0
    assert ca.read_bytes() == content
    verify(ca, tmp_path / "certs" / "server.pem")


def strict_context(authority: Path) -> ssl.SSLContext:
    """As Python's own from 3.13 on."""
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def authority_of_others(
    path: Path, key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, usage: x509.KeyUsage | None = SIGNING
) -> None:
    """Write an authority that another tool may have made: the certificate first, and a key identifier of its own."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "others")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime(2020, 1, 1))
        .not_valid_after(datetime(2049, 1, 1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(b"their own"), critical=False)
    )
    if usage is not None:
        builder = builder.add_extension(usage, critical=True)
    certificate = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    content = certificate.public_bytes(Encoding.PEM)
    path.write_bytes(
        content + key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        if isinstance(key, rsa.RSAPrivateKey)
        else content + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


@pytest.mark.parametrize("kind", ["rsa", "ed25519"])
def test_an_authority_of_another_tool(tmp_path: Path, kind: str) -> None:
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ed25519.Ed25519PrivateKey.generate()
    authority_of_others(tmp_path / "ca.pem", key)
    made = certs(str(tmp_path / "made"), "--ca", str(tmp_path / "ca.pem"))
    assert (made.returncode, made.stderr) == (0, "")
    context = strict_context(tmp_path / "made" / "ca.pem")
    config = dict(re.findall(r"-c ([a-z.]+)=(\S+)", made.stdout))
    with oncelog.Broker(config={**config, "listeners": "SSL://127.0.0.1:0"}) as kafka:
        assert shake_hands(kafka, context) == "TLSv1.3"


def test_an_authority_that_strict_clients_refuse_is_a_warning(tmp_path: Path) -> None:
    authority_of_others(tmp_path / "ca.pem", ed25519.Ed25519PrivateKey.generate(), usage=None)
    made = certs(str(tmp_path / "made"), "--ca", str(tmp_path / "ca.pem"))
    assert made.returncode == 0
    assert made.stderr == (
        "oncelog: the authority's certificate has no key usage (keyCertSign): clients that verify strictly refuse it, "
        "among them those that use Python's ssl from 3.13 on (kafka-python, aiokafka)\n"
    )
    config = dict(re.findall(r"-c ([a-z.]+)=(\S+)", made.stdout))
    with oncelog.Broker(config={**config, "listeners": "SSL://127.0.0.1:0"}) as kafka:
        with pytest.raises(ssl.SSLCertVerificationError, match="key usage"):
            shake_hands(kafka, strict_context(tmp_path / "made" / "ca.pem"))
        lenient = ssl.create_default_context(cafile=str(tmp_path / "made" / "ca.pem"))
        lenient.verify_flags &= ~ssl.VERIFY_X509_STRICT
        assert shake_hands(kafka, lenient) == "TLSv1.3"


@pytest.mark.slow
def test_an_authority_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    assert certs(str(tmp_path / "a"), "--ca", str(tmp_path / "ca")).returncode == 0
    (tmp_path / "text").write_text("nothing")
    protected = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    (tmp_path / "protected").write_bytes(protected)
    (tmp_path / "other").write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    for ca, key, said in (
        (
            "text",
            None,
            f"the authority in {tmp_path}/text cannot be used: there is no private key (PEM) in it",
        ),
        ("a/server.pem", None, "its certificate is not that of an authority"),
        ("a/ca.pem", None, "there is no private key (PEM) in it"),
        (
            "a/ca.pem",
            "other",
            f"{tmp_path}/a/ca.pem and {tmp_path}/other cannot be used: its key is not that of its",
        ),
        ("text", "other", "there is no certificate (PEM) in it"),
        ("a/ca.pem", "protected", "its key has a password"),
        (
            "a/ca.pem",
            "none",
            f"{tmp_path}/a/ca.pem is there, but {tmp_path}/none is not: both make the authority",
        ),
        ("a", None, f"cannot read {tmp_path}/a: Is a directory"),
    ):
        more = [] if key is None else ["--ca-key", str(tmp_path / key)]
        refused = certs(str(tmp_path / "b"), "--ca", str(tmp_path / ca), *more)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


# -- dates


@pytest.mark.slow
def test_dates(tmp_path: Path) -> None:
    kept = ("--ca", str(tmp_path / "ca"))
    now = datetime.now(UTC)
    for name, dates, begin, end in (
        ("usual", (), now - timedelta(days=1), now + timedelta(days=825)),
        ("days", ("--days", "30"), now - timedelta(days=1), now + timedelta(days=30)),
        ("over", ("--days", "-1"), now - timedelta(days=2), now - timedelta(days=1)),
        (
            "both",
            ("--not-before", "2026-01-01", "--not-after", "2027-01-01T10:00+02:00"),
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2027, 1, 1, 8, tzinfo=UTC),
        ),
        (
            "long ago",
            ("--not-after", "2020-01-01"),
            datetime(2019, 12, 31, tzinfo=UTC),
            datetime(2020, 1, 1, tzinfo=UTC),
        ),
    ):
        made = certs(str(tmp_path / name), *kept, *dates)
        assert made.returncode == 0
        for file in ("server.pem", "client.pem"):
            found = valid_at(tmp_path / name / file)
            for one, expected in zip(found, (begin, end), strict=True):
                assert abs(one - expected) < timedelta(minutes=5)
            verify(tmp_path / name / "ca.pem", tmp_path / name / file)
        assert ("were valid until" in made.stderr) == (end < now)


@pytest.mark.slow
def test_what_is_unusual_about_the_dates_is_said(tmp_path: Path) -> None:
    def said(name: str, *arguments: str) -> str:
        return certs(str(tmp_path / name), *arguments).stderr

    kept = ("--ca", str(tmp_path / "ca"))
    assert said("now", *kept) == ""
    assert said("over", *kept, "--not-after", "2020-01-01") == (
        "oncelog: server.pem and client.pem were valid until 2020-01-01T00:00:00Z: both sides refuse them\n"
    )
    assert said("later", "--not-before", "2199-01-01", "--not-after", "2200-01-01") == (
        "oncelog: server.pem and client.pem begin at 2199-01-01T00:00:00Z: until then both sides refuse them\n"
    )
    assert "what it signs no longer than that" in said("long", *kept, "--not-after", "2199-01-01")
    # A new authority is valid as long as what it signs.
    assert valid_at(tmp_path / "later" / "ca.pem")[1] == datetime(2200, 1, 1, tzinfo=UTC)


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    made = certs(str(tmp_path), "--days", "-1")
    config = dict(re.findall(r"-c ([a-z.]+)=(\S+)", made.stdout))
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with oncelog.Broker(config={**config, "listeners": "SSL://127.0.0.1:0"}) as kafka:
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
            shake_hands(kafka, context)
        assert "the client says: certificate expired" in kafka.wait_for_failed_login().reason
