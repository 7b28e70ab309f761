"""CreateAcls (API key 30): adds access control lists; SECURITY_DISABLED if there is no authorizer.

One that exists already is no error. Source: ``AclApis``, ``AclControlManager``.
"""

from __future__ import annotations

from oncelog.broker.handlers.describe_acls import check_kinds, require_authorizer
from oncelog.broker.handlers.services import AccessServices
from oncelog.broker.metadata import acl_changes
from oncelog.broker.metadata.acls import AclBinding
from oncelog.broker.requests.request import RequestContext
from oncelog.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(
    services: AccessServices, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    for acl in request.creations:
        check_kinds(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    require_authorizer(services)
    wanted = [
        AclBinding(
            acl.resource_type,
            acl.resource_name,
            acl.resource_pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in request.creations
    ]
    results = acl_changes.create(services.metadata, wanted)
    return CreateAclsResponse(
        results=[
            AclCreationResult() if error is None else AclCreationResult(error.code, error.message)
            for error in results
        ]
    )
