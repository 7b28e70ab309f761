"""The command ``oncelog certs DIR``: an authority and certificates for development, and what to set where.

Exit codes are those of `oncelog.broker.command.cli`.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from oncelog.broker.config.options import Parser, UsageError, flag_of
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.extras import install_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from oncelog.broker.security.tls.authority import DevelopmentAuthority, Validity

EXIT_FAILED = 1
CA = "ca.pem"
HELP = "see oncelog certs --help"
FIRST_YEAR = 1950

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
    try:
        options = _parser().parse_args(arguments)
        _check(options)
    except UsageError as error:
        raise UsageError(f"{error}; {HELP}") from None
    try:
        from oncelog.broker.command.certs_authority import AuthorityError, AuthorityFiles
        from oncelog.broker.security.tls.authority import LOCAL_NAMES, ORGANIZATION, Validity
    except ModuleNotFoundError as error:
        return _failed(f"certificates need {error.name}: {install_command('security')}")
    directory = os.path.abspath(options.directory)
    now = datetime.fromtimestamp(real_time.now_ms() // 1000, UTC)
    validity = Validity(*_dates(options, now))
    files = AuthorityFiles(options.ca, options.ca_key, f"{directory}/{CA}")
    try:
        authority, is_new = files.authority(real_time.now_ms(), validity)
    except AuthorityError as error:
        return _failed(str(error))
    names = options.name or LOCAL_NAMES
    server, client = authority.server(names, validity), authority.client(options.client, validity)
    contents = {
        CA: authority.pem,
        "server.pem": server.key + server.chain,
        "client.pem": client.key + client.chain,
    }
    if files.is_in_directory and not is_new:
        del contents[CA]
    kept = files.contents(authority) if is_new else {}
    try:
        os.makedirs(directory, exist_ok=True)
        there = [name for name in contents if os.path.lexists(f"{directory}/{name}")]
        if there:
            return _failed(f"{directory}/{there[0]} is there already: remove it, or take another directory")
        for path, content in kept.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _write(path, content)
        for name, content in contents.items():
            if f"{directory}/{name}" not in kept:
                _write(f"{directory}/{name}", content)
    except OSError as error:
        return _failed(f"cannot write to {error.filename or directory}: {error.strerror}")
    for line in _remarks(validity, authority, now):
        print(f"oncelog: {line}", file=sys.stderr)
    print(SETTINGS.format(directory=directory, principal=f"CN={options.client},O={ORGANIZATION}"), end="")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="oncelog certs",
        description="Make an authority for development, and certificates for a broker and a client.",
        epilog="A date is 2026-11-22, or 2026-11-22T17:00 (UTC, or with a zone such as +01:00).",
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
    parser.add_argument(
        "--ca",
        metavar="FILE",
        help="keep the authority there, its key and its certificate; one that is there signs the certificates "
        "(default: a new one, whose key is kept nowhere)",
    )
    parser.add_argument(
        "--ca-key",
        metavar="FILE",
        help="keep its key there, so that the file of --ca has the certificate only",
    )
    parser.add_argument(
        "--days",
        metavar="NUMBER",
        help="from now on the broker's and the client's certificates are valid for so many days (default: 825); "
        "-1: until a day ago",
    )
    parser.add_argument(
        "--not-before", metavar="DATE", help="they are valid from then on (default: a day ago)"
    )
    parser.add_argument(
        "--not-after", metavar="DATE", help="they are valid until then, which may be in the past"
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that contradict each other."""
    for option in ("ca", "ca_key", "client"):
        if getattr(options, option) == "":
            raise UsageError(f"{flag_of(option)} needs a value")
    if options.ca_key is not None and options.ca is None:
        raise UsageError("--ca-key needs --ca, the file of the authority's certificate")
    if options.ca is not None and options.ca == options.ca_key:
        raise UsageError("--ca and --ca-key are the same file: leave --ca-key out")
    if options.days is not None and options.not_after is not None:
        raise UsageError("--days and --not-after exclude each other")


def _dates(options: argparse.Namespace, now: datetime) -> tuple[datetime, datetime]:
    """Return when the certificates are valid. Raises UsageError."""
    from oncelog.broker.security.tls.authority import DAYS

    begin = _date("--not-before", options.not_before)
    end = _date("--not-after", options.not_after)
    if end is None:
        try:
            end = now + timedelta(days=float(options.days or DAYS))
        except (ValueError, OverflowError):
            raise UsageError(f"--days {options.days}: expected a number of days; {HELP}") from None
    if begin is None:
        begin = min(now, end) - timedelta(days=1)
    if end <= begin:
        raise UsageError(f"the certificates would end ({_text(end)}) before they begin ({_text(begin)})")
    if begin.year < FIRST_YEAR:
        raise UsageError(f"no certificate can be valid from {_text(begin)} on, before the year {FIRST_YEAR}")
    return begin, end


def _date(option: str, text: str | None) -> datetime | None:
    """Return the date of an option. Raises UsageError."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: expected a date such as 2026-11-22; {HELP}") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return found.replace(microsecond=0)


def _remarks(certificates: Validity, authority: DevelopmentAuthority, now: datetime) -> Iterator[str]:
    """Yield what is unusual about the dates, and about the authority."""
    signed = authority.validity
    if certificates.end < now:
        yield f"server.pem and client.pem were valid until {_text(certificates.end)}: both sides refuse them"
    elif certificates.begin > now:
        yield f"server.pem and client.pem begin at {_text(certificates.begin)}: until then both sides refuse them"
    if signed.end < now:
        yield f"the authority was valid until {_text(signed.end)}: both sides refuse what it signs"
    elif signed.end < certificates.end:
        yield f"the authority is valid until {_text(signed.end)}, and what it signs no longer than that"
    if missing := authority.missing_extensions:
        yield (
            f"the authority's certificate has no {' and no '.join(missing)}: clients that verify strictly refuse it, "
            "among them those that use Python's ssl from 3.13 on (kafka-python, aiokafka)"
        )


def _text(date: datetime) -> str:
    return f"{date:%Y-%m-%dT%H:%M:%SZ}"


def _write(path: str, content: bytes) -> None:
    """Write a file that only its owner can read if there is a key in it."""
    mode = 0o600 if b"PRIVATE KEY" in content else 0o644
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _failed(reason: str) -> int:
    print(f"oncelog: {reason}", file=sys.stderr)
    return EXIT_FAILED
