"""DeleteAcls (API key 31): deletes the access control lists that filters match; SECURITY_DISABLED if there is no
authorizer.

All are deleted in one batch. Source: ``AclApis``, ``AclControlManager``.
"""

from __future__ import annotations

from oncelog.broker.handlers.chunked import chunked_then
from oncelog.broker.handlers.describe_acls import check_kinds, require_authorizer
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.metadata.acl_changes import AclFilter, Deletion
from oncelog.broker.requests.request import Pending, RequestContext
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(
    services: AccessServices, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse | Pending[DeleteAclsResponse]:
    for wanted in request.filters:
        check_kinds(
            wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type
        )
    require_authorizer(services)
    filters = [
        AclFilter(
            one.resource_type_filter,
            one.resource_name_filter,
            one.pattern_type_filter,
            one.principal_filter,
            one.host_filter,
            one.operation,
            one.permission_type,
        )
        for one in request.filters
    ]
    deletion = Deletion(services.metadata, filters)

    def respond() -> DeleteAclsResponse:
        deletion.commit()
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(result.code, result.message)
                if isinstance(result, KafkaError)
                else DeleteAclsFilterResult(
                    error_message=None, matching_acls=[DeleteAclsMatchingAcl(0, None, *acl) for acl in result]
                )
                for result in deletion.results
            ]
        )

    rows = len(filters) * len(services.metadata.image.acls.by_id)
    return chunked_then(deletion.find(), rows, respond)
