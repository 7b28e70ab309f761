"""CreateAcls (API key 30): more access control lists: SECURITY_DISABLED, as there is no authorizer.

Kafka: ``AclApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.describe_acls import NO_AUTHORIZER, check_kinds
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    for row in request.creations:
        check_kinds(row.resource_type, row.resource_pattern_type, row.operation, row.permission_type)
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
