"""DescribeUserScramCredentials (50): v0. Mechanisms and iterations of users, never keys; no user named means all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in sorted(broker.image.scram.items()):
        info = CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        known.setdefault(user, []).append(info)
    asked = Counter(user.name for user in request.users) if request.users else Counter(known.keys())
    results = [_result(user, known.get(user), is_twice=count > 1) for user, count in asked.items()]
    return DescribeUserScramCredentialsResponse(error_code=0, error_message=None, results=results)


def error_response(
    request: DescribeUserScramCredentialsRequest, error: KafkaError, version: int
) -> DescribeUserScramCredentialsResponse:
    """The error stands at the top, and at every user named."""
    code, text = int(error.code), error.message
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=text,
        results=[
            DescribeUserScramCredentialsResult(user=user.name, error_code=code, error_message=text, credential_infos=[])
            for user in request.users or ()
        ],
    )


def _result(user: str, infos: list[CredentialInfo] | None, *, is_twice: bool) -> DescribeUserScramCredentialsResult:
    code, text = ErrorCode.NONE, None
    if is_twice:
        code = ErrorCode.DUPLICATE_RESOURCE
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif infos is None:
        code = ErrorCode.RESOURCE_NOT_FOUND
        text = f"Attempt to describe a user credential that does not exist: {user}"
    shown = infos if code is ErrorCode.NONE and infos is not None else []
    return DescribeUserScramCredentialsResult(
        user=user, error_code=int(code), error_message=text, credential_infos=shown
    )
