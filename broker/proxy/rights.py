"""Which rows of a request a proxy refuses: those that name a resource to which the client has no right.

The broker's handlers check the same rights (`docs/reference/rights.md`), each beside its data. Here they come from the
table of APIs (`oncelog.broker.handlers.table`). Source: ``KafkaApis``, ``ControllerApis``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.handlers.config_rights import config_refusal
from oncelog.broker.handlers.rights import RESOURCE_TYPES
from oncelog.broker.handlers.table import CLUSTER, GROUP, TOPIC
from oncelog.broker.requests.authorization import (
    AUTHORIZATION_ERROR,
    CLUSTER_ACTION,
    RESOURCE_NAMES,
    THE_CLUSTER,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncelog.broker.handlers.table import ApiRow
    from oncelog.broker.refusal.rows import RequestRows, Row
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import RequestContext

    May = Callable[[str], bool]
    """Whether something may be done to the resource with a name."""


class DeniedResources(NamedTuple):
    """The rows that name a resource to which the client has no right; see `RowSelector`."""

    fact: str
    may: May
    error: KafkaError

    def depth_in(self, rows: RequestRows) -> int:
        """See `RowSelector`."""
        return rows.depths.get(self.fact, 0)

    def matches_row(self, row: Row) -> bool:
        """See `RowSelector`. A row with an unknown topic id does not match: upstream refuses it."""
        name = row.facts.get(self.fact)
        return name is not None and not self.may(name)


class DeniedConfigs(NamedTuple):
    """The resources of one type whose configurations the client has no right to; see `RowSelector`."""

    refusal: Callable[[int, str], KafkaError | None]
    error: KafkaError

    def depth_in(self, rows: RequestRows) -> int:
        """See `RowSelector`."""
        return 1

    def matches_row(self, row: Row) -> bool:
        """See `RowSelector`."""
        element = row.element
        found = self.refusal(element.resource_type, element.resource_name)
        return found is not None and found.code is self.error.code


class AllRows(NamedTuple):
    """All rows; see `RowSelector`."""

    error: KafkaError

    def depth_in(self, rows: RequestRows) -> int:
        """See `RowSelector`."""
        return len(rows.levels)

    def matches_row(self, row: Row) -> bool:
        """See `RowSelector`."""
        return True


Selector = DeniedResources | DeniedConfigs | AllRows


def row_selectors(authorization: Authorization, services: Any, context: RequestContext) -> Iterator[Selector]:
    """Yield the selectors of rows to refuse, in Kafka's order of checks."""
    row, request = context.api.row, context.request
    name = row.name
    if row.config_operation is not None:
        refusal = config_refusal(services, context, row.config_operation)
        assert refusal is not None, "there is an authorizer"
        refusal = cache(refusal)  # asked several times, a denied name would count as often in the log
        for kind in (TOPIC, GROUP, CLUSTER):
            yield DeniedConfigs(refusal, error_of(row, kind))
        return
    if name == "find_coordinator" and context.api_version < 4:
        return  # the whole request needs the right: see `check_rights`
    instead = row.cluster_instead
    if instead is not None and authorization.allows(context, instead, *THE_CLUSTER, quiet=True):
        return
    if name == "fetch" and _replica_of(request) >= 0:
        if not authorization.allows(context, CLUSTER_ACTION, *THE_CLUSTER):
            yield AllRows(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return
    if name == "add_partitions_to_txn" and context.api_version >= 4:
        return  # the whole request needs the right: see `check_rights`
    for operation, kind in row.row_rights:
        if name == "offset_fetch" and kind == GROUP and context.api_version < 8:
            continue  # the whole request needs the right: see `check_rights`
        # Asked for twice, a denied name would count twice in the log.
        may: May = cache(authorization.predicate(context, operation, RESOURCE_TYPES[kind]))
        if name == "add_partitions_to_txn":
            may = _except_internal(may)
        yield DeniedResources(kind, may, error_of(row, kind))


def error_of(row: ApiRow, kind: str) -> KafkaError:
    """Return the error of a row that names a denied resource of this kind."""
    resource_type = RESOURCE_TYPES[kind]
    text = f"The client may not do this to the {RESOURCE_NAMES[resource_type]}."
    return KafkaError(AUTHORIZATION_ERROR[resource_type], text if row.denied_message else None)


def _except_internal(may: May) -> May:
    return lambda name: name not in INTERNAL_TOPICS and may(name)


def _replica_of(request: Any) -> int:
    """Return the id of the replica that fetches, -1 for a consumer."""
    state = getattr(request, "replica_state", None)
    if state is not None and state.replica_id >= 0:
        return int(state.replica_id)
    return int(getattr(request, "replica_id", -1))
