"""AlterUserScramCredentials (51): sets and removes the SCRAM passwords of users (KIP-554)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], api_key=51, kind="request", versions="0", flexible="0+"
):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, kind="response", versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
