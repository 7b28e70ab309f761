"""Names of certificates as Java writes them, and ``ssl.principal.mapping.rules``, against Java and Kafka themselves."""

from __future__ import annotations

import base64
import datetime
import pathlib
import random
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from oncelog.broker.security.tls.principal import NoMatchingRule, PrincipalMapper, distinguished_name
from tests.common.jars import compile_java, tool_command
from tests.common.recorded.recorder import Recorder

pytestmark = pytest.mark.slow

TYPES = [
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.TITLE,
    x509.ObjectIdentifier("1.2.3.4.5"),
]
CHARS = 'aB9 ,=+<>#;"\\/.é雪\t'
RULES = [
    "",
    "DEFAULT",
    " DEFAULT , ",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L,DEFAULT",
    "RULE:CN=(.*?),.*/$1/U",
    "RULE:.*CN=([^,]*).*/$1$2$12/,RULE:O=.*/org/",
    "RULE:^.*O=([a-zA-Z ]*).*$/\\$1 $1x/",
    "RULE:.*/a\\/b/",
    "RULE:(a|CN)=.*/$0/L",
    "RULE:CN=.*",
    "RULE:CN=.*/x",
    "RULE:CN=.*/x/Q",
    "RULE:CN=.*/x/LU",
    "nonsense",
    "DEFAULT,nonsense",
    "RULE:(/x/",
    "DEFAULT DEFAULT",
]


def random_name(rng: random.Random) -> x509.Name:
    def attribute() -> x509.NameAttribute[str]:
        text = "".join(rng.choices(CHARS, k=rng.randint(1, 12))) if rng.random() < 0.7 else "plain"
        oid = rng.choice(TYPES)
        if oid == NameOID.SERIAL_NUMBER:
            text = "12 3"
        if oid in (NameOID.EMAIL_ADDRESS, NameOID.DOMAIN_COMPONENT):
            return x509.NameAttribute(oid, "me@x.org", _ASN1Type.IA5String)
        return x509.NameAttribute(oid, text)

    parts = []
    for _ in range(rng.randint(1, 5)):
        attributes = [attribute() for _ in range(1 if rng.random() < 0.85 else 2)]
        if len({one.oid for one in attributes}) == len(attributes):
            parts.append(x509.RelativeDistinguishedName(attributes))
    return x509.Name(
        parts or [x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COMMON_NAME, "a")])]
    )


KEY = ed25519.Ed25519PrivateKey.generate()


def as_parsed(name: x509.Name) -> x509.Name:
    """The name as a certificate has it: parts with several values are sorted."""
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 1, now, now)
    return x509.load_der_x509_certificate(builder.sign(KEY, None).public_bytes(Encoding.DER)).subject


def ours(name: x509.Name, rules: str) -> tuple[str, str]:
    text = distinguished_name(as_parsed(name))
    try:
        return text, "=" + PrincipalMapper(rules).name(text)
    except NoMatchingRule:
        return text, "!NoMatchingRule"
    except ValueError:
        return text, "!refused"


def javas(cases: list[tuple[x509.Name, str]], folder: pathlib.Path) -> list[tuple[str, str]]:
    """The name's text and what the rules make of it, of each case, as Kafka's classes have them."""
    compile_java([pathlib.Path(__file__).with_name("PrincipalNames.java")], folder)
    lines = "".join(
        f"{base64.b64encode(name.public_bytes()).decode()} {base64.b64encode(rules.encode()).decode()}\n"
        for name, rules in cases
    )
    done = subprocess.run(
        tool_command("PrincipalNames", class_path=[folder]),
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [
        [base64.b64decode(word).decode() for word in line.split(" ")] for line in done.stdout.splitlines()
    ]
    return [(text, found) for text, found in rows]


def test_names_and_rules_are_javas(answers: Recorder, tmp_path: pathlib.Path) -> None:
    rng = random.Random(14)
    cases = [(random_name(rng), rules) for rules in RULES for _ in range(60)]
    wrong = []
    for (name, rules), theirs in zip(cases, answers.of_kafka(lambda: javas(cases, tmp_path)), strict=True):
        refused = ("!IllegalArgumentException", "!PatternSyntaxException")
        wanted = (theirs[0], "!refused" if theirs[1] in refused else theirs[1])
        if ours(name, rules) != wanted:
            wrong.append(f"{rules!r}: {ours(name, rules)} instead of {theirs}")
    assert not wrong, "\n".join(wrong[:20])
