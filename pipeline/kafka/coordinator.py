"""The coordinator of a group or a transactional id: the broker is looked up, and looked up again when it has moved.

    coordinator = Coordinator(cluster, "loader", KeyType.TRANSACTION)
    response = coordinator.request(EndTxnRequest(...), lambda response: [response.error_code])

Retriable errors (the coordinator loads or has moved, another operation on the transaction runs, the connection broke)
are retried for the cluster's `timeout_s`. The first response without a retriable code is returned, for the caller to
judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Final

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError, ClientTimeout, ConnectionClosed
from klamm.pipeline.errors import ClusterError
from klamm.pipeline.kafka.cluster import Cluster, error_code
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest

MANY_KEYS_SINCE: Final = 4
MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """The coordinator of one group or transactional id. Shares the cluster's connections."""

    def __init__(self, cluster: Cluster, key: str, key_type: KeyType) -> None:
        self.cluster = cluster
        self.key = key
        self.key_type = key_type
        self._address: tuple[str, int] | None = None

    def request(
        self,
        request: Any,
        codes: Callable[[Any], Iterable[int]],
        *,
        kind: type[Any] | None = None,
        most: int | None = None,
        least: int = 0,
    ) -> Any:
        """Return the first response in which `codes` finds nothing retriable. Raises ClusterError.

        The version is between `least` and `most`. `request` may be a function of the version; then `kind` is the class
        of the request.
        """
        retries = self.cluster.retries()
        what = f"{self.key_type.name.lower()} {self.key}"
        while True:
            try:
                client = self.client()
                response = _ask(client, request, kind, most, least)
            except (ConnectionClosed, ClientTimeout) as error:
                self.forget(broken=True)
                retries.again(f"the coordinator of {what}: {error}")
                continue
            except ClientError as error:
                raise ClusterError(f"the coordinator of {what}: {error}") from None
            found = next((code for code in map(error_code, codes(response)) if code.retriable), None)
            if found is None:
                return response
            if found in MOVED:
                self.forget()
            retries.again(f"the coordinator of {what}: {found.name}, {found.default_message}")

    def client(self) -> NodeClient:
        """Return the connection to the coordinator."""
        if self._address is None:
            self._address = self._find()
        return self.cluster.client(*self._address)

    def forget(self, *, broken: bool = False) -> None:
        """Forget the address: the coordinator has moved, or its connection broke."""
        if broken and self._address is not None:
            self.cluster.drop(*self._address)
        self._address = None

    def _find(self) -> tuple[str, int]:
        retries = self.cluster.retries()
        while True:
            response = self.cluster.ask(self._question, FindCoordinatorRequest)
            found = response.coordinators[0] if response.coordinators else response
            code = error_code(found.error_code)
            if code == ErrorCode.NONE:
                return found.host, found.port
            text = f"no coordinator of {self.key_type.name.lower()} {self.key}: {code.name}, {code.default_message}"
            if not code.retriable:
                raise ClusterError(text)
            retries.again(text)

    def _question(self, version: int) -> FindCoordinatorRequest:
        if version >= MANY_KEYS_SINCE:
            return FindCoordinatorRequest(key_type=self.key_type, coordinator_keys=[self.key])
        return FindCoordinatorRequest(key=self.key, key_type=self.key_type)


def _ask(client: NodeClient, request: Any, kind: type[Any] | None, most: int | None, least: int) -> Any:
    version = client.choose_version(kind or type(request))
    if most is not None:
        version = min(version, most)
    if version < least:
        raise ClientError(f"{client.host}:{client.port} is too old: it has version {version}, {least} is needed")
    return client.request(request if kind is None else request(version), version)
