"""What the client of one request may do: its questions to the authorizer, each asked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.security.authorizer.codes import CLUSTER_NAME, Operation, ResourceType
from klamm.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from klamm.broker.apis.rights.table import Right
    from klamm.broker.network.connection import Connection
    from klamm.broker.security.authorizer.audit import AuditLog, Question
    from klamm.broker.security.authorizer.standard import StandardAuthorizer

REFUSALS = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    ResourceType.DELEGATION_TOKEN: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
    ResourceType.USER: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
}


def refusal(resource: ResourceType) -> KafkaError:
    """The error for a resource of this type. Texts name nothing that the client may not know."""
    code, message = REFUSALS[resource]
    return KafkaError(code, message)


REFUSED: Mapping[ResourceType, Callable[[], KafkaError]] = {
    resource: partial(refusal, resource) for resource in REFUSALS
}


class Asker:
    """Asks for one request of one connection."""

    __slots__ = ("_answers", "_audit", "_authorizer", "_request", "host", "principal")

    def __init__(self, authorizer: StandardAuthorizer, audit: AuditLog, connection: Connection, request: str) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self._request = request
        self._answers: dict[tuple[int, int, str], bool] = {}
        self.principal = connection.principal
        self.host = connection.peer[0]

    def may(self, right: Right, name: str = CLUSTER_NAME, *, quiet: bool = False) -> bool:
        """Whether the client has the right to the resource. A denial that is no refusal yet is asked for quietly."""
        operation, resource = right
        key = (operation, resource, name)
        allowed = self._answers.get(key)
        if allowed is None:
            allowed = self._authorizer.allows(self.principal, self.host, operation, resource, name)
            self._answers[key] = allowed
        elif allowed or quiet:
            return allowed
        if allowed:
            if self._audit.has_allowed:
                self._audit.allowed(self._question(right, name), self._authorizer)
        elif not quiet:
            self._audit.denied(self._question(right, name), self._authorizer)
        return allowed

    def _question(self, right: Right, name: str) -> Question:
        from klamm.broker.security.authorizer.audit import Question  # no need of it without an authorizer

        return Question(self.principal, self.host, right.operation, right.resource, name, self._request)

    def need(self, right: Right, name: str = CLUSTER_NAME) -> None:
        """Raise the error of the resource type without the right."""
        if not self.may(right, name):
            raise refusal(right.resource)

    def may_on_some(self, right: Right) -> bool:
        """Whether the client has the right to some resource of the type."""
        return self._authorizer.allows_some(self.principal, self.host, right.operation, right.resource)

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bits of all operations that are allowed. This is not audited."""
        return self._authorizer.allowed(self.principal, self.host, resource, name)

    def may_describe_cluster(self) -> bool:
        return bool(self.operations(ResourceType.CLUSTER) >> Operation.DESCRIBE & 1)
