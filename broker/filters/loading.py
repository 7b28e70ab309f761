"""Loads filters by name: ``module:name``, with settings as ``module:name,setting=value``."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

from oncelog.broker.config.options import closest
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.faults.words import suggestion
from oncelog.broker.filters.record_filter import RecordFilter
from oncelog.broker.handlers.table import api_names
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.requests.request import NO_RESPONSE, CloseConnection, ConnectionLost
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from oncelog.broker.host.served import Served
    from oncelog.broker.requests.request import RequestContext

log = get_logger(__name__)

_AWAITED = {"on_request": ("context",), "on_response": ("context", "response")}
_CALLED = {
    "on_done": ("context", "response", "failure"),
    "on_produced": ("record", "context"),
    "on_fetched": ("record", "context"),
}
_ARGUMENTS = _AWAITED | _CALLED
"""The functions of a filter, and what each is given."""


class FilterError(ValueError):
    """A filter that cannot be loaded; the message says why and what is expected."""


def load_filter(text: str) -> Interceptor:
    """Return the interceptor that ``module:name`` names: an instance, or what makes one, called with the settings.

    Settings are texts; one whose parameter is annotated as ``int``, ``float`` or ``bool`` is converted. Raises
    FilterError.
    """
    path, *given = text.split(",")
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise FilterError(
            f"{text}: expected MODULE:NAME, such as stamp:Stamp for the class Stamp in stamp.py"
        )
    if module_name.endswith(".py") or "/" in module_name:
        raise FilterError(
            f"{text}: {module_name} is a file: expected its module's name, such as stamp:Stamp for the class Stamp "
            "in stamp.py"
        )
    settings: dict[str, str] = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals or not key.isidentifier():
            raise FilterError(f"{text}: {setting!r}: expected a setting as NAME=VALUE")
        settings[key] = value
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            begin = sys.path[0] or "the current folder"
            raise FilterError(
                f"{text}: there is no module {error.name} on Python's path, which begins with {begin}"
            ) from error
        raise FilterError(f"{text}: cannot import {module_name}: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if found is None:
        there = [
            key
            for key, one in vars(module).items()
            if is_filter(one) and one not in (Interceptor, RecordFilter)
        ]
        near = closest(name, [one for one in dir(module) if not one.startswith("_")])
        if there:
            said = f"its filters are {', '.join(there)}"
        else:
            said = "it has no filters" if near is None else f"did you mean {near}?"
        raise FilterError(f"{text}: {module_name} has no {name}; {said}")
    if isinstance(found, Interceptor):
        if settings:
            raise FilterError(f"{text}: {name} is made already, and takes no settings")
        return checked_filter(found)
    if not callable(found):
        raise FilterError(f"{text}: {name} is no oncelog.Interceptor, but {found!r}")
    return checked_filter(_made(text, name, found, settings))


def checked_filter(found: Interceptor) -> Interceptor:
    """Return the interceptor. Raises FilterError for one that wants to see an API that there is not, that has no
    function which would be called, or one that cannot be called so.
    """
    kind = type(found)
    for name in _ARGUMENTS:
        _check_function(kind, name, getattr(found, name, None))
    if isinstance(found.apis, str):
        raise FilterError(
            f"{kind.__name__}.apis={found.apis!r}: expected a set, such as frozenset({{{found.apis!r}}})"
        )
    for api in sorted(found.apis or ()):
        if api not in api_names():
            raise FilterError(
                f"{kind.__name__}.apis: {api!r} is no API{suggestion(api, api_names())}; "
                "expected Kafka's names, such as Produce"
            )
    _check_names(found)
    return found


def _check_function(kind: type[Interceptor], name: str, bound: Any) -> None:
    """Refuse a function that is asynchronous and should not be, or the other way round, or takes other arguments."""
    function = getattr(kind, name, None)
    # A decorated function may be right in another way.
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return
    if (name in _AWAITED) != inspect.iscoroutinefunction(function):
        raise FilterError(
            f"{kind.__name__}.{name} is {'awaited: write' if name in _AWAITED else 'called, not awaited: not'} "
            f"async def {name}"
        )
    given = _ARGUMENTS[name]
    try:
        inspect.signature(bound).bind(*given)
    except TypeError:
        begin = "async def" if name in _AWAITED else "def"
        wanted = f"{begin} {name}({', '.join(('self', *given))})"
        raise FilterError(f"{kind.__name__}.{name} does not take what it is given: write {wanted}") from None


def _check_names(found: Interceptor) -> None:
    """Refuse a filter with a misspelt function, and one without any."""
    kind = type(found)
    base = RecordFilter if isinstance(found, RecordFilter) else Interceptor
    own = [name for name in _ARGUMENTS if _is_own(found, name, base)]
    missing = [name for name in _ARGUMENTS if hasattr(base, name) and name not in own]
    for name in vars(kind):
        meant = closest(name, missing) if name.startswith("on") and name not in _ARGUMENTS else None
        if meant is not None:
            raise FilterError(f"{kind.__name__}.{name} is never called; did you mean {meant}?")
    if not own:
        of_records = next((name for name in ("on_produced", "on_fetched") if hasattr(found, name)), None)
        if of_records is not None and base is Interceptor:
            raise FilterError(f"{kind.__name__}.{of_records} is called for an oncelog.RecordFilter only")
        raise FilterError(f"{kind.__name__} does nothing: it has none of {', '.join(missing)}")


def _is_own(found: Interceptor, name: str, base: type[Interceptor]) -> bool:
    """Whether a filter has a function of this name that is not only that of the class in oncelog."""
    inherited = getattr(base, name, None)
    return inherited is not None and getattr(getattr(found, name), "__func__", None) is not inherited


def is_filter(value: Any) -> bool:
    """Whether something in a module is an interceptor, or a class of them."""
    return isinstance(value, Interceptor) or (isinstance(value, type) and issubclass(value, Interceptor))


def _made(text: str, name: str, make: Any, settings: dict[str, str]) -> Interceptor:
    parameters = inspect.signature(make, eval_str=False).parameters
    try:
        arguments = {
            key: _converted(parameters[key].annotation, value) if key in parameters else value
            for key, value in settings.items()
        }
        made = make(**arguments)
    except Exception as error:
        raise FilterError(f"{text}: {name} cannot be made: {error}") from error
    if not isinstance(made, Interceptor):
        raise FilterError(f"{text}: {name} makes no oncelog.Interceptor, but {made!r}")
    return made


def _converted(annotation: Any, text: str) -> Any:
    kind = getattr(annotation, "__name__", annotation)
    if kind in ("int", "float"):
        return int(text) if kind == "int" else float(text)
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r}: expected true or false")
        return text.lower() == "true"
    return text


def install_filters(filters: Iterable[Interceptor], target: Served) -> None:
    """Install filters, the one nearest to the clients first."""
    for one in filters:
        one.known_topics = target.known_topics
        target.dispatcher.interception.install(_Guard(one))


class _Guard(Interceptor):
    """A filter whose own errors are told as such, and fail one request."""

    def __init__(self, inner: Interceptor) -> None:
        self._inner = inner
        self.apis = inner.apis
        self.only_reads = inner.only_reads
        self.unknown_apis_pass = inner.unknown_apis_pass
        self._silent_apis: set[str] = set()
        """The APIs of which it let a response not leave, and the log knows."""

    async def on_request(self, context: RequestContext) -> Any:
        return await self._guarded(context, self._inner.on_request, context) if self._wants(context) else None

    async def on_response(self, context: RequestContext, response: Any) -> Any:
        if not self._wants(context):
            return response
        left = await self._guarded(context, self._inner.on_response, context, response)
        if left is None and context.api_name not in self._silent_apis:
            # It may be meant; more often the filter has forgotten to return the response, and its client waits.
            self._silent_apis.add(context.api_name)
            log.warning(
                "on_response of a filter returned None: its client gets no response (if it is meant, return "
                "oncelog.NO_RESPONSE)",
                filter=type(self._inner).__name__,
                api=context.api_name,
            )
        return left

    def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
        if self._wants(context):
            try:
                self._inner.on_done(context, response, failure)
            except Exception:
                self._log(context)

    def _wants(self, context: RequestContext) -> bool:
        # An ApiVersions of an unknown version has no request to look at.
        return context.request is not None and (self.apis is None or context.api_name in self.apis)

    async def _guarded(
        self, context: RequestContext, function: Callable[..., Awaitable[Any]], *arguments: Any
    ) -> Any:
        try:
            returned = await function(*arguments)
            if returned is not None and returned is not NO_RESPONSE:
                expected = context.api.response
                if not isinstance(returned, expected):
                    raise TypeError(
                        f"{function.__name__} returned {type(returned).__name__}, which is no {expected.__name__}"
                    )
            return returned
        except (KafkaError, CloseConnection, ConnectionLost):
            raise
        except Exception as error:
            self._log(context)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a filter failed") from error

    def _log(self, context: RequestContext) -> None:
        log.exception("a filter failed", filter=type(self._inner).__name__, api=context.api_name)
