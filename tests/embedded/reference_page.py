"""Makes docs/reference/testing-reference.md of signatures and docstrings:
``python -m tests.embedded.reference_page > docs/reference/testing-reference.md``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import oncelog
from oncelog.broker.control_http.docstrings import attribute_docstrings
from oncelog.broker.prove.judging.judge import Problem
from oncelog.pytest_plugin import factories, proxies, settings

HEAD = """\
# Reference for tests

Every fixture, setting, method and result of the test kit. [testing.md](../how-to/testing.md) shows how to use them, a
task at a time. `make docs` makes this page from signatures and docstrings, and a test compares it with them.

In the tables `kafka` is the fixture, an `oncelog.Broker`. The fixture `async_kafka` is an `oncelog.AsyncBroker`: it
has the same names, and its methods and properties are awaited. Only these are not: `topic()`, `group()`,
`share_group()`, `transactions`, `clock`, `faults`, `nodes` and `network`, which give the next object; what only
describes (`bootstrap_servers`, `cluster_id`, `seed`, `client_config()`, `certificate()`, `token()`); and of a rule all
words but the last.

| you have | you look for |
|---|---|
| pytest | [fixtures](#fixtures), [factories](#factories), [settings](#settings), \
[options](#command-line-and-ini-file) |
| `oncelog.Broker(...)`, `oncelog.Proxy(...)` | [arguments of a broker](#arguments-of-a-broker), [of a \
proxy](#arguments-of-a-proxy) |
| `kafka` | [methods](#kafka), [topics](#kafkatopicname), [groups](#kafkagroupgroup_id), [share \
groups](#kafkashare_groupgroup_id), \
[transactions](#kafkatransactions), [time](#kafkaclock), [faults](#kafkafaults), [several nodes](#several-nodes) |
| a result | [records and topics](#records-and-topics), [groups](#groups), [transactions and \
producers](#transactions-and-producers), \
[requests](#requests), [metrics of clients](#metrics-of-clients), [proofs](#proofs), [errors](#errors) |

## Fixtures

| fixture | scope | what it is |
|---|---|---|
| `kafka` | function | a fresh broker, an `oncelog.Broker` |
| `async_kafka` | function | the same broker as an `oncelog.AsyncBroker`, for tests in asyncio and Trio |
| `kafka_proc` | session | one broker for all tests of the process; with pytest-xdist each worker has its own |
| `kafka_noproc` | session | a Kafka cluster that runs already, at `--kafka-bootstrap-servers` |
| `kafka_prove` | function | [`oncelog.prove`](#proofs), which fails the test unless the program keeps its promise |
| `kafka_proxy`, `async_kafka_proxy` | function | a [proxy](../how-to/proxy.md#with-pytest) before the broker of \
`kafka`, or before a cluster |

The plugin imports nothing and starts nothing until a test asks for a fixture. `-p no:oncelog` leaves it out
altogether.
"""

SETTINGS = """\
## Settings

A fixture's settings are the [arguments of `oncelog.Broker`](#arguments-of-a-broker), and `faults`: one rule, a list
of rules, or the path of a file ([faults.md](faults.md)). These places set them, from the strongest to the weakest:

| place | for example |
|---|---|
| marker of the test, then of its class, then of its module | `@pytest.mark.kafka(topics={"orders": 3}, \
config={"message.max.bytes": 5_000_000})` |
| factory in `conftest.py` | `kafka = factories.kafka(topics=["audit"])` |
| command line | `--kafka-topic=audit:3 --kafka-config=num.partitions=2` |
| variable of the environment, where the table of options names one | `ONCELOG_KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:9092` |
| ini file | `kafka_topics = audit:3` |

`topics` and `config` of all places are joined, topic by topic and key by key. Of every other setting the strongest
place wins. Paths in `faults` and `from_snapshot` start at pytest's rootdir. `@pytest.mark.kafka_proxy` takes the
[arguments of `oncelog.Proxy`](#arguments-of-a-proxy), and `faults`.

A fixture reads the markers of its own scope: one with scope class those of the class and its module, one with scope
module those of the module, one with scope package or session none. A marker that no fixture of the test reads is an
error.
"""

FAULTS = """\
A rule says which requests, which of those, and what happens to them: `on`, then a count, then an action. The action
puts the rule in force. The same words stand in files; [faults.md](faults.md) says what each does in detail.
"""

NODES = """\
Of a broker with `nodes=3`, `kafka` has these, too. [nodes.md](../how-to/nodes.md) shows how to use them.
"""

PROOFS = """\
`oncelog.prove(program, ...)`, and the fixture `kafka_prove`, run a program once for each step at which it can fail, and
give a verdict. [prove.md](../how-to/prove.md) shows how to use them.
"""

PARTS_OF_KAFKA = {
    "start": "Start and stop",
    "topics": "Topics, groups, transactions, time",
    "produce": "Write without a client",
    "requests": "Requests of clients",
    "bootstrap_servers": "The broker itself",
    "client_config": "Log-ins and TLS",
    "configure_client_metrics": "Metrics that clients send",
}
"""The first method of each part of `oncelog.Broker`, and the part's heading."""

FACADE, ACCESS, CLIENT_METRICS = oncelog.Broker.__mro__[1:4]
HEAD_OF_METHODS = "| name | gives | what it does |\n|---|---|---|\n"

EXAMPLE = re.compile(r"(?m)\A(?:    .*\n?|\n)+\Z")
ITEM = re.compile(r"(?P<names>[`\w]+(?:, [`\w]+)*): (?P<text>.*)", re.DOTALL)


class Part(NamedTuple):
    """A paragraph of a docstring, or an argument that it describes."""

    names: list[str]
    text: str


def parts(docstring: str | None) -> list[Part]:
    """Return the paragraphs of a docstring and its arguments, in order. Examples are left out: the guide has them."""
    found = []
    for paragraph in inspect.cleandoc(docstring or "").split("\n\n"):
        if EXAMPLE.match(paragraph):
            continue
        for text in re.split(r"\n(?=\w+(?:, \w+)*: )|(?<=\.)\n(?=Raises )", paragraph):
            item = ITEM.fullmatch(text)
            names = item["names"].replace("`", "").split(", ") if item else []
            found.append(Part(names, _line(item["text"] if item else text)))
    return found


def cell(docstring: str | None, arguments: set[str] | None = None) -> str:
    """Return a docstring as a cell of a table; what is said of an argument stands on a line of its own."""
    return "<br>".join(
        f"{', '.join(f'`{name}`' for name in part.names)}: {part.text}"
        if arguments is not None and set(part.names) <= arguments and part.names
        else f"{', '.join(part.names)}: {part.text}"
        if part.names
        else part.text
        for part in parts(docstring)
    )


def _line(text: str) -> str:
    text = re.sub(r"docs/([\w-]+/([\w-]+\.md))", r"[\2](../\1)", " ".join(text.split()))
    return text.replace("``", "`").replace("|", r"\|")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|") if text else ""


def call(function: Callable[..., Any], name: str) -> str:
    """Return a call with the names of its arguments, and their defaults."""
    signature = inspect.signature(function)
    shown = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in signature.parameters.values()
        if one.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    return f"{name}{text}".replace("'", '"')


def members(*kinds: type) -> Iterator[str]:
    """Yield a row for each public method and property of classes."""
    for kind in kinds:
        for name, member in vars(kind).items():
            function = member.fget if isinstance(member, property) else member
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            arguments = set(inspect.signature(function).parameters)
            shown = name if isinstance(member, property) else call(function, name)
            gives = str(function.__annotations__.get("return", ""))
            if kinds[0] is FACADE and name in PARTS_OF_KAFKA:
                yield f"\n### {PARTS_OF_KAFKA[name]}\n\n{HEAD_OF_METHODS}"
            yield f"| `{shown}` | {_code('' if gives == 'None' else gives)} | {cell(function.__doc__, arguments)} |\n"


def methods(*kinds: type) -> str:
    """Return a table of the methods and properties of classes."""
    return HEAD_OF_METHODS + "".join(members(*kinds))


def fields(kind: type) -> str:
    """Return a table of what a result has: its fields, then its properties and methods."""
    texts = attribute_docstrings(kind)
    rows = [
        f"| `{one.name}` | {_code(str(one.type))} | {_line(texts.get(one.name, ''))} |\n"
        for one in dataclasses.fields(kind)
    ]
    return "| name | type | what it says |\n|---|---|---|\n" + "".join([*rows, *members(kind)])


def arguments(kind: Callable[..., Any]) -> str:
    """Return a table of the arguments of a class or a function, as its docstring describes them."""
    signature = inspect.signature(kind).parameters
    rows = []
    for part in parts(kind.__doc__):
        if part.names and set(part.names) <= set(signature):
            defaults = dict.fromkeys(
                repr(signature[name].default).replace("'", '"')
                for name in part.names
                if signature[name].default is not inspect.Parameter.empty
            )
            names = ", ".join(f"`{name}`" for name in part.names)
            rows.append(f"| {names} | {', '.join(map(_code, defaults))} | {part.text} |\n")
    return "| argument | default | what it is |\n|---|---|---|\n" + "".join(rows)


def about(kind: type) -> str:
    """Return the paragraphs about a class, without its arguments."""
    described = set(inspect.signature(kind).parameters)
    return "\n".join(part.text for part in parts(kind.__doc__) if not set(part.names) & described) + "\n"


def options() -> str:
    """Return a table of pytest's options."""
    rows = [
        (row.option, row.metavar, row.ini, row.help + (f"; or `{row.variable}`" if row.variable else ""))
        for row in settings.OPTIONS
    ]
    rows.append((proxies.OPTION, "HOST:PORT,...", proxies.INI, proxies.HELP))
    return "| option | in the ini file | what it is |\n|---|---|---|\n" + "".join(
        f"| `{option}{'=' if metavar else ''}{metavar}` | `{ini}` | {help_} |\n"
        for option, metavar, ini, help_ in rows
    )


def made_by_factories() -> str:
    """Return a table of the factories of fixtures."""
    rows = []
    for name in ("kafka", "kafka_proc", "kafka_noproc", "kafka_proxy", "kafka_prove", "async_kafka"):
        function = getattr(factories, name)
        text = cell(function.__doc__, set(inspect.signature(function).parameters))
        rows.append(f"| `{call(function, f'factories.{name}')}` | {text} |\n")
    return "| factory | what it does |\n|---|---|\n" + "".join(rows)


def errors() -> str:
    """Return a table of the errors that the test kit raises."""
    kinds: tuple[type, ...] = (
        oncelog.OncelogError,
        *oncelog.OncelogError.__subclasses__(),
        oncelog.KafkaError,
        oncelog.LeftClientWarning,
    )
    return "| error | what it says |\n|---|---|\n" + "".join(
        f"| `oncelog.{kind.__name__}` | {cell(kind.__doc__)} |\n" for kind in kinds
    )


def section(level: int, title: str, *texts: str) -> str:
    return "\n".join([f"{'#' * level} {title}\n", *texts])


def results(*kinds: type) -> Iterator[str]:
    """Yield a section for each class of results."""
    for kind in kinds:
        yield section(3, kind.__name__, about(kind), fields(kind))


def sections() -> Iterator[str]:
    yield HEAD
    yield section(3, "Factories", "`from oncelog.pytest_plugin import factories`\n", made_by_factories())
    yield SETTINGS
    yield section(3, "Command line and ini file", options())
    yield section(3, "Arguments of a broker", about(oncelog.Broker), arguments(oncelog.Broker))
    yield section(3, "Arguments of a proxy", about(oncelog.Proxy), arguments(oncelog.Proxy))
    yield section(3, "Acl", about(oncelog.Acl), arguments(oncelog.Acl))
    yield section(2, "kafka", "".join(members(FACADE, ACCESS, CLIENT_METRICS)).lstrip())
    yield section(2, "kafka.topic(name)", about(oncelog.Topic), methods(oncelog.Topic))
    yield section(2, "kafka.group(group_id)", about(oncelog.Group), methods(oncelog.Group))
    yield section(2, "kafka.share_group(group_id)", about(oncelog.ShareGroup), methods(oncelog.ShareGroup))
    yield section(2, "kafka.transactions", about(oncelog.Transactions), methods(oncelog.Transactions))
    yield section(3, 'kafka.transactions["app"]', about(oncelog.Transaction), methods(oncelog.Transaction))
    yield section(2, "kafka.clock", about(oncelog.Clock), methods(oncelog.Clock))
    yield section(2, "kafka.faults", FAULTS, methods(oncelog.Faults))
    yield section(3, "A rule that is not complete: RuleDraft", methods(oncelog.RuleDraft))
    yield section(3, "A rule in force: Rule", about(oncelog.Rule), methods(oncelog.Rule))
    yield from results(oncelog.RuleState)
    yield section(2, "Several nodes", NODES, methods(oncelog.Broker))
    yield section(3, "kafka.nodes[1]", about(oncelog.Node), methods(oncelog.Node))
    yield section(3, "kafka.nodes[1].clock", about(oncelog.NodeClock), methods(oncelog.NodeClock))
    yield section(3, "kafka.nodes[1].topic(name)", about(oncelog.Replica), methods(oncelog.Replica))
    yield section(3, "kafka.network", about(oncelog.Network), methods(oncelog.Network))
    yield from results(oncelog.NodeInfo, oncelog.PartitionState, oncelog.ReplicaInfo)
    yield section(2, "Records and topics", *results(oncelog.Record, oncelog.TopicInfo, oncelog.PartitionInfo))
    yield section(2, "Groups", *results(oncelog.GroupInfo, oncelog.Member))
    share = (oncelog.ShareGroupInfo, oncelog.ShareMember, oncelog.SharePartitionInfo, oncelog.RecordsInFlight)
    yield section(2, "Share groups", *results(*share, oncelog.DeadLetter))
    yield section(2, "Transactions and producers", *results(oncelog.TransactionInfo, oncelog.ProducerInfo))
    yield section(2, "Work that came due", *results(oncelog.Occurrence))
    yield section(2, "Requests", *results(oncelog.Request, oncelog.FailedLogin))
    yield section(2, "Metrics of clients", *results(oncelog.ClientMetricsPush, oncelog.ClientMetric))
    yield section(2, "Proofs", PROOFS, arguments(oncelog.prove))
    yield from results(oncelog.Verdict, oncelog.Finding, oncelog.LastWords, Problem, oncelog.MovedOffset)
    yield section(2, "Errors", errors())


def page() -> str:
    """Return the whole page, as Markdown."""
    return "\n".join(sections())


if __name__ == "__main__":
    print(page(), end="")
