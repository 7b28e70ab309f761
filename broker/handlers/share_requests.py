"""The first checks of requests of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.rights import check_rights
from oncelog.broker.metadata.features import are_share_groups_enabled
from oncelog.broker.share.responses import is_member_id
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext


def member_of(services: Services, context: RequestContext) -> tuple[str, str]:
    """Return the group and the member of a ShareFetch or ShareAcknowledge. Raises KafkaError."""
    request = context.request
    if not are_share_groups_enabled(services.metadata.image):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    check_rights(services.authorization, context)
    if not is_member_id(request.member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return request.group_id, request.member_id


def check_group(services: Services, context: RequestContext) -> None:
    """Check a request that changes the offsets of a share group. Raises KafkaError."""
    if not are_share_groups_enabled(services.metadata.image):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The version of API is not supported.")
    check_rights(services.authorization, context)
    if not context.request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
