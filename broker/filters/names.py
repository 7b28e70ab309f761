"""How names of clients become names of the cluster, and back: by a table, by a prefix, by two functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from oncelog.broker.filters.loading import FilterError
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError

Named = tuple[str, Callable[[str, RequestContext], str | None]]
"""A function, after its name for messages."""

LITERAL, PREFIXED = 3, 4
"""Pattern types of ACLs (Kafka: ``PatternType``)."""
WILDCARD = "*"
"""As the literal name of an ACL's resource: all resources."""


class Names:
    """Names that are one to one. ``word`` says of what they are names.

    `to_cluster` and `to_client` return None for a name that the other side has not.
    """

    def __init__(self, word: str) -> None:
        self.word = word

    def hides_some(self, context: RequestContext) -> bool:
        """Whether the cluster may have names of others, which this client does not see."""
        return True

    def begin(self, context: RequestContext) -> str | None:
        """Return that with which all names begin in the cluster that this client sees; None if nothing is known."""
        return None

    def to_cluster(self, name: str, context: RequestContext) -> str | None:
        """Return the cluster's name for a client's."""
        raise NotImplementedError

    def to_client(self, name: str, context: RequestContext) -> str | None:
        """Return the client's name for one of the cluster."""
        raise NotImplementedError

    def acl_to_cluster(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        """Return name and pattern type of the resource of an ACL, or of a filter for ACLs, in the cluster."""
        raise NotImplementedError

    def acl_to_client(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        """Return name and pattern type of the resource of an ACL, as clients see it."""
        raise NotImplementedError

    def expression_to_cluster(self, expression: str, context: RequestContext) -> str:
        """Return the regular expression for the cluster's names. Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
        return expression

    def expression_to_client(self, expression: str, context: RequestContext) -> str:
        """Return the regular expression for clients' names."""
        return expression


class Table(Names):
    """Names in a table, from client to cluster; all others are the same on both sides.

    A name that the table gives to something else does not exist on the other side. Regular expressions, and prefixes in
    ACLs, are not renamed.
    """

    def __init__(self, word: str, names: Mapping[str, str]) -> None:
        """Raises FilterError for names that are not one to one."""
        super().__init__(word)
        if not isinstance(names, Mapping) or not all(
            isinstance(one, str) and one for pair in names.items() for one in pair
        ):
            raise FilterError(
                f"{names!r}: expected a dict from clients' names to the cluster's, such as "
                "{'orders': 'shop.orders'}"
            )
        self._to_cluster: dict[str, str] = dict(names)
        self._to_client: dict[str, str] = {}
        for ours, theirs in names.items():
            other = self._to_client.setdefault(theirs, ours)
            if other != ours:
                raise FilterError(
                    f"the {word}s {other} and {ours} are both {theirs} in the cluster: names must be one to one"
                )

    def hides_some(self, context: RequestContext) -> bool:
        return False

    def to_cluster(self, name: str, context: RequestContext) -> str | None:
        return self._to_cluster.get(name, None if name in self._to_client else name)

    def to_client(self, name: str, context: RequestContext) -> str | None:
        return self._to_client.get(name, None if name in self._to_cluster else name)

    def acl_to_cluster(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        new = name if pattern_type == PREFIXED else self.to_cluster(name, context)
        return None if new is None else (new, pattern_type)

    def acl_to_client(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        new = name if pattern_type == PREFIXED else self.to_client(name, context)
        return None if new is None else (new, pattern_type)


class Prefix(Names):
    """Names that begin with a prefix in the cluster; clients see no others. A function gives the prefix for each
    request; an empty one renames nothing.
    """

    def __init__(self, word: str, prefix: str | Callable[[RequestContext], str]) -> None:
        super().__init__(word)
        if isinstance(prefix, str):
            if not prefix:
                raise FilterError("prefix='': expected a text, such as 'tenant-a.'")
        elif callable(prefix):
            _check_takes("prefix", prefix, ("context",))
        else:
            raise FilterError(f"prefix={prefix!r}: expected a text, or a function of the context")
        self._prefix = prefix

    def begin(self, context: RequestContext) -> str:
        prefix = self._prefix if isinstance(self._prefix, str) else self._prefix(context)
        if not isinstance(prefix, str):
            raise TypeError(
                f"the function for the prefix of {self.word}s returned {prefix!r}: expected a text"
            )
        return prefix

    def hides_some(self, context: RequestContext) -> bool:
        return self.begin(context) != ""

    def to_cluster(self, name: str, context: RequestContext) -> str | None:
        return self.begin(context) + name

    def to_client(self, name: str, context: RequestContext) -> str | None:
        prefix = self.begin(context)
        return name[len(prefix) :] if name.startswith(prefix) and len(name) > len(prefix) else None

    def acl_to_cluster(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        prefix = self.begin(context)
        if name == WILDCARD and prefix and pattern_type != PREFIXED:
            return prefix, PREFIXED
        return prefix + name, pattern_type

    def acl_to_client(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        prefix = self.begin(context)
        if not name.startswith(prefix):
            return None
        if name == prefix:
            return (WILDCARD, LITERAL) if pattern_type == PREFIXED else None
        return name[len(prefix) :], pattern_type

    def expression_to_cluster(self, expression: str, context: RequestContext) -> str:
        from oncelog.coordinator.groups.consumer.expressions import check

        prefix = self.begin(context)
        if not prefix:
            return expression
        check(expression)  # it must not end the brackets around it
        return f"{_quoted(prefix)}(?:{_without_first_anchors(expression)})"

    def expression_to_client(self, expression: str, context: RequestContext) -> str:
        begin = f"{_quoted(self.begin(context))}(?:"
        if expression.startswith(begin) and expression.endswith(")"):
            return expression[len(begin) : -1]
        return expression


class Functions(Names):
    """Names by two functions of the name and the request's context. The second one is checked to be the first one's
    inverse, name by name, as they come.
    """

    def __init__(
        self,
        word: str,
        to_cluster: Callable[[str, RequestContext], str | None],
        to_client: Callable[[str, RequestContext], str | None],
    ) -> None:
        super().__init__(word)
        for name, function in (("to_cluster", to_cluster), ("to_client", to_client)):
            _check_takes(name, function, ("name", "context"))
        self._to_cluster = to_cluster
        self._to_client = to_client

    def to_cluster(self, name: str, context: RequestContext) -> str | None:
        there, back = ("to_cluster", self._to_cluster), ("to_client", self._to_client)
        return self._one_to_one(there, back, name, context)

    def to_client(self, name: str, context: RequestContext) -> str | None:
        there, back = ("to_client", self._to_client), ("to_cluster", self._to_cluster)
        return self._one_to_one(
            there, back, name, context, "; return None for a name that clients do not see"
        )

    def _one_to_one(
        self, there: Named, back: Named, name: str, context: RequestContext, advice: str = ""
    ) -> str | None:
        """Return what the function ``there`` makes of a name. Raises ValueError unless ``back`` undoes it."""
        new = self._called(*there, name, context)
        if new is not None:
            again = self._called(*back, new, context)
            if again != name:
                raise ValueError(
                    f"{self.word}s: {there[0]}({name!r}) is {new!r}, but {back[0]}({new!r}) is {again!r}, not "
                    f"{name!r}: names must be one to one{advice}"
                )
        return new

    def _called(
        self,
        which: str,
        function: Callable[[str, RequestContext], str | None],
        name: str,
        context: RequestContext,
    ) -> str | None:
        new = function(name, context)
        if new is not None and not (isinstance(new, str) and new):
            raise TypeError(f"{self.word}s: {which}({name!r}) is {new!r}: expected a name, or None")
        return new

    def acl_to_cluster(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        if pattern_type == PREFIXED or name == WILDCARD:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{self.word}s are renamed by functions, which cannot rename prefixes and *: name one {self.word}",
            )
        new = self.to_cluster(name, context)
        return None if new is None else (new, pattern_type)

    def acl_to_client(self, name: str, pattern_type: int, context: RequestContext) -> tuple[str, int] | None:
        new = None if pattern_type == PREFIXED or name == WILDCARD else self.to_client(name, context)
        return None if new is None else (new, pattern_type)

    def expression_to_cluster(self, expression: str, context: RequestContext) -> str:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{self.word}s are renamed by functions, which cannot rename regular expressions: name the {self.word}s",
        )


def _check_takes(argument: str, function: Callable[..., Any], given: tuple[str, ...]) -> None:
    """Raise FilterError for what cannot be called so."""
    wanted = f"{argument}({', '.join(given)})"
    if not callable(function):
        raise FilterError(f"{argument}={function!r}: expected a function {wanted}")
    if inspect.iscoroutinefunction(function):
        raise FilterError(f"{argument} is called, not awaited: not async def {wanted}")
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        raise FilterError(f"{argument} does not take what it is given: write {wanted}") from None
    except ValueError:  # no signature: a function in C
        return


def _quoted(text: str) -> str:
    """Return the regular expression that matches this text (Python's and RE2's agree on such)."""
    return re.escape(text)


_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|$)"
    r"|\\[pPx]\{[^}]*\}"
    r"|\\."
    r"|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]"
    r"|\(\?(?:P?<\w+>|[^:)<]*[:)])"
    r"|.",
    re.DOTALL,
)
r"""The parts of a valid regular expression of RE2: a quotation, ``\p{Greek}``, an escape, a class, the beginning of a
group or its flags, a character."""


def _without_first_anchors(expression: str) -> str:
    r"""Return a valid regular expression without each ``^`` and ``\A`` with which it, or an alternative of it, begins:
    something stands before it now. It has to match the whole name anyway.
    """
    kept = []
    is_first = True
    for token in _TOKEN.findall(expression):
        if is_first and token in ("^", "\\A"):
            continue
        kept.append(token)
        if not (token.startswith("(?") and token.endswith(")")):  # flags
            is_first = token == "|" or token.startswith("(")
    return "".join(kept)
