"""DeleteAcls (API key 31): deletes access control lists; SECURITY_DISABLED, since there is no authorizer.

Source: ``AclApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.describe_acls import NO_AUTHORIZER, check_kinds
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services


def handle(services: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    for wanted in request.filters:
        check_kinds(
            wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type
        )
    result = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
