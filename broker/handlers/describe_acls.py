"""DescribeAcls (API key 29): lists access control lists; SECURITY_DISABLED if there is no authorizer.

Clients know this error from a Kafka without an authorizer, and go on without the lists (MirrorMaker does). Source:
``AclApis``, ``DescribeAclsResponse``.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.broker.handlers.chunked import chunked
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.metadata.acl_changes import AclFilter
from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.requests.request import CloseConnection, Pending, RequestContext
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

UNKNOWN = 0
"""The resource type, pattern type, permission type or operation that no client may send."""


def handle(
    services: AccessServices, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse | Pending[DescribeAclsResponse]:
    check_kinds(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    require_authorizer(services)
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    response = DescribeAclsResponse()
    acls = list(services.metadata.image.acls.by_id.values())
    return chunked(_describe(acls, wanted, response), len(acls), response)


def require_authorizer(services: AccessServices) -> None:
    """Raises KafkaError (SECURITY_DISABLED) without an authorizer: there are no ACLs then."""
    if services.authorization.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "The broker has no authorizer.")


def _describe(acls: list[AclBinding], wanted: AclFilter, response: DescribeAclsResponse) -> Iterator[None]:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in acls:
        if wanted.matches(acl):
            resource = resources.get(acl[:3])
            if resource is None:
                resource = resources[acl[:3]] = DescribeAclsResource(*acl[:3], [])
                response.resources.append(resource)
            resource.acls.append(AclDescription(*acl[3:]))
        yield


def check_kinds(*kinds: int) -> None:
    """Raises CloseConnection if one of the types, or the operation, is `UNKNOWN`."""
    if UNKNOWN in kinds:
        raise CloseConnection("an access control list of an unknown kind")
