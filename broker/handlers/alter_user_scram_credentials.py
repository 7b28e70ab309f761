"""AlterUserScramCredentials (API key 51): sets and removes SCRAM passwords, one change for each user.

All changes that are not refused are one batch of records. Source: ``ScramControlManager``; KIP-554.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.credentials.scram import SCRAM_MECHANISMS, salted_credential
from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.metadata.topics import check_record_count
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from oncelog.wire.stored.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from oncelog.broker.credentials.scram import ScramMechanism
    from oncelog.broker.handlers.services import AccessServices
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion
    from oncelog.wire.schema import Message
    from oncelog.wire.steps import Steps

BY_NUMBER = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()}


def handle(
    services: AccessServices, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse | Pending[AlterUserScramCredentialsResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: AccessServices, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> Steps[AlterUserScramCredentialsResponse]:
    """Make the response, a row at each step."""
    scram_credentials = services.metadata.image.scram_credentials
    began = services.metadata.image.offset
    records: dict[str, Message] = {}
    errors: dict[str, KafkaError] = {}
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    for change in changes:
        yield
        if change.name in errors:
            continue
        try:
            if records.pop(change.name, None) is not None:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            records[change.name] = (
                _upsertion(change)
                if isinstance(change, ScramCredentialUpsertion)
                else _deletion(change, services.metadata.image)
            )
        except KafkaError as error:
            errors[change.name] = error
    if services.metadata.image.offset != began:
        # The metadata changed between the steps: somebody else may have deleted one of them.
        for change in request.deletions:
            if change.name in records and (change.name, change.mechanism) not in scram_credentials:
                del records[change.name]
                errors[change.name] = _no_credential()
    check_record_count(len(records))
    if records:
        services.metadata.commit(list(records.values()))
    response = AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user, error_message=None) for user in records]
    )
    for user, refused in errors.items():
        response.results.append(AlterUserScramCredentialsResult(user, refused.code, refused.message))
        yield
    return response


def _upsertion(change: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    mechanism = _mechanism(change)
    if change.iterations < mechanism.iterations_min:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > mechanism.iterations_max:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salt, stored_key, server_key, iterations = salted_credential(
        mechanism, bytes(change.salt), bytes(change.salted_password), change.iterations
    )
    return UserScramCredentialRecord(change.name, change.mechanism, salt, stored_key, server_key, iterations)


def _deletion(change: ScramCredentialDeletion, image: MetadataImage) -> RemoveUserScramCredentialRecord:
    _mechanism(change)
    if (change.name, change.mechanism) not in image.scram_credentials:
        raise _no_credential()
    return RemoveUserScramCredentialRecord(change.name, change.mechanism)


def _no_credential() -> KafkaError:
    return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def _mechanism(change: ScramCredentialUpsertion | ScramCredentialDeletion) -> ScramMechanism:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism
