"""DeleteAcls (API key 31): fewer access control lists: SECURITY_DISABLED, as there is no authorizer.

Kafka: ``AclApis``.
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
    for row in request.filters:
        check_kinds(row.resource_type_filter, row.pattern_type_filter, row.operation, row.permission_type)
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
