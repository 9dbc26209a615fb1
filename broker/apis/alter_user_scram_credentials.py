"""AlterUserScramCredentials (51): v0. Each user of a request succeeds or fails independently, and has one result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.controller.credentials import Deletion, Upsertion
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    deletions = [Deletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    errors = await broker.controller.alter_scram(deletions, upsertions)
    results = [_result(user, error) for user, error in errors.items()]
    return AlterUserScramCredentialsResponse(results=results)


def error_response(
    request: AlterUserScramCredentialsRequest, error: KafkaError, version: int
) -> AlterUserScramCredentialsResponse:
    deleted, upserted = ([each.name for each in changes] for changes in (request.deletions, request.upsertions))
    users = dict.fromkeys([*deleted, *upserted])
    return AlterUserScramCredentialsResponse(results=[_result(user, error) for user in users])


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    code = int(error.code) if error is not None else 0
    return AlterUserScramCredentialsResult(
        user=user, error_code=code, error_message=error.message or None if error is not None else None
    )
