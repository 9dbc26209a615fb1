"""The SCRAM users of a running cluster: listed, added and deleted through one of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError
from klamm.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from klamm.protocol.scram import BY_NUMBER, ScramMechanism


class CannotChange(Exception):
    """The users cannot be read or changed; the message is the line for the operator."""


@dataclass(frozen=True, slots=True)
class User:
    """A user in a list: one line for each mechanism."""

    name: str
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A new SCRAM credential, without the password. Its secret parts are not shown."""

    name: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class Users(Protocol):
    """The users of a broker, whether it runs or not. Each raises CannotChange."""

    def all_users(self) -> list[User]: ...

    def add(self, credential: NewCredential) -> None: ...

    def delete(self, name: str, mechanism: ScramMechanism) -> None: ...


class RunningUsers:
    """The users of a running cluster, through an open client."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client

    def all_users(self) -> list[User]:
        response = self._ask(DescribeUserScramCredentialsRequest(users=None))
        if response.error_code:
            raise CannotChange(_reason(response))
        return sorted(
            (
                User(result.user, BY_NUMBER[info.mechanism].name, info.iterations)
                for result in response.results
                for info in result.credential_infos
            ),
            key=lambda user: (user.name, user.mechanism),
        )

    def add(self, credential: NewCredential) -> None:
        upsertion = ScramCredentialUpsertion(
            name=credential.name,
            mechanism=credential.mechanism.number,
            iterations=credential.iterations,
            salt=credential.salt,
            salted_password=credential.salted_password,
        )
        self._alter(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))

    def delete(self, name: str, mechanism: ScramMechanism) -> None:
        deletion = ScramCredentialDeletion(name=name, mechanism=mechanism.number)
        self._alter(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))

    def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        for result in self._ask(request).results:
            if result.error_code:
                raise CannotChange(_reason(result))

    def _ask(self, request: Any) -> Any:
        try:
            return self._client.request(request)
        except ClientError as error:
            raise CannotChange(str(error)) from None


def _reason(answer: Any) -> str:
    return answer.error_message or f"refused with error {answer.error_code}"
