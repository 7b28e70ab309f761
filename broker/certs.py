"""The command ``oncelog certs DIR``: an authority and certificates for development, and what to set where.

Exit codes are those of `oncelog.broker.cli`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from oncelog.broker.options import Parser, UsageError
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_FAILED = 1
FILES = ("ca.pem", "server.pem", "client.pem")

SETTINGS = """\
Broker (or in a server.properties):

    oncelog --listen SSL://127.0.0.1:9092 \\
        -c ssl.keystore.type=PEM -c ssl.keystore.location={directory}/server.pem \\
        -c ssl.truststore.type=PEM -c ssl.truststore.location={directory}/ca.pem \\
        -c ssl.client.auth=requested

Clients. Those that show no certificate leave the lines about client.pem out; those that do are User:{principal}.

    Java                 security.protocol=SSL
                         ssl.truststore.type=PEM
                         ssl.truststore.location={directory}/ca.pem
                         ssl.keystore.type=PEM
                         ssl.keystore.location={directory}/client.pem
    confluent-kafka,     security.protocol=SSL
    librdkafka, kcat     ssl.ca.location={directory}/ca.pem
                         ssl.certificate.location={directory}/client.pem
                         ssl.key.location={directory}/client.pem
    kafka-python         security_protocol="SSL"
                         ssl_cafile="{directory}/ca.pem"
                         ssl_certfile="{directory}/client.pem"
    aiokafka             security_protocol="SSL", ssl_context=aiokafka.helpers.create_ssl_context(
                             cafile="{directory}/ca.pem", certfile="{directory}/client.pem")
    kafkajs              ssl: {{
                             ca: [readFileSync("{directory}/ca.pem")],
                             key: readFileSync("{directory}/client.pem"),
                             cert: readFileSync("{directory}/client.pem"),
                         }}
    franz-go, Sarama     ca, err := os.ReadFile("{directory}/ca.pem")
                         config := &tls.Config{{RootCAs: x509.NewCertPool()}}
                         config.RootCAs.AppendCertsFromPEM(ca)
                         pair, err := tls.LoadX509KeyPair("{directory}/client.pem", "{directory}/client.pem")
                         config.Certificates = []tls.Certificate{{pair}}
        franz-go         kgo.DialTLSConfig(config)
        Sarama           Net.TLS.Enable, Net.TLS.Config = true, config
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Raises UsageError."""
    parser = Parser(
        prog="oncelog certs",
        description="Make an authority for development, and certificates for a broker and a client.",
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", help="where to put ca.pem, server.pem and client.pem")
    parser.add_argument(
        "--name",
        action="append",
        metavar="HOST",
        help="a host name or address of the broker; may be repeated (default: localhost, 127.0.0.1 and ::1)",
    )
    parser.add_argument(
        "--client", default="client", metavar="NAME", help="the client's name (default: client)"
    )
    try:
        options = parser.parse_args(arguments)
    except UsageError as error:
        raise UsageError(f"{error}; see oncelog certs --help") from None
    try:
        from oncelog.broker.security.tls.authority import LOCAL_NAMES, ORGANIZATION, DevelopmentAuthority
    except ModuleNotFoundError as error:
        return _failed(f"certificates need {error.name}: pip install 'oncelog[security]'")
    directory = os.path.abspath(options.directory)
    authority = DevelopmentAuthority(real_time.now_ms())
    server, client = authority.server(options.name or LOCAL_NAMES), authority.client(options.client)
    contents = dict(
        zip(FILES, (authority.pem, server.key + server.chain, client.key + client.chain), strict=True)
    )
    try:
        os.makedirs(directory, exist_ok=True)
        there = [name for name in FILES if os.path.lexists(f"{directory}/{name}")]
        if there:
            return _failed(f"{directory}/{there[0]} is there already: remove it, or take another directory")
        for name, content in contents.items():
            _write(f"{directory}/{name}", content)
    except OSError as error:
        return _failed(f"cannot write to {directory}: {error.strerror}")
    print(SETTINGS.format(directory=directory, principal=f"CN={options.client},O={ORGANIZATION}"), end="")
    return 0


def _write(path: str, content: bytes) -> None:
    """Write a file that only its owner can read, but for the authority's certificate."""
    mode = 0o644 if path.endswith("ca.pem") else 0o600
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _failed(reason: str) -> int:
    print(f"oncelog: {reason}", file=sys.stderr)
    return EXIT_FAILED
