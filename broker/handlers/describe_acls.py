"""DescribeAcls (API key 29): lists access control lists; SECURITY_DISABLED, since there is no authorizer.

Clients know this response from a Kafka without an authorizer, and go on without the lists (MirrorMaker does). Source:
``AclApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import CloseConnection
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

NO_AUTHORIZER = "The broker has no authorizer."

UNKNOWN = 0
"""The resource type, pattern type, permission type or operation that no client may send."""


def handle(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    check_kinds(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(0, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def check_kinds(*kinds: int) -> None:
    """Raises CloseConnection if one of the types, or the operation, is `UNKNOWN`."""
    if UNKNOWN in kinds:
        raise CloseConnection("an access control list of an unknown kind")
