"""CreateAcls (API key 30): adds access control lists; SECURITY_DISABLED, since there is no authorizer.

Source: ``AclApis``.
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
    for acl in request.creations:
        check_kinds(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    result = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=[result] * len(request.creations))
