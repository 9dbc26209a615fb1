"""A Kafka cluster: topics, partitions, leaders, offsets, configs. Over `klamm.client`, with retries.

    with Cluster("broker-1:9092,broker-2:9092") as cluster:
        topics = cluster.topics(["flights"])
        partitions = topics["flights"].topic_partitions
        ends = cluster.latest(partitions)

Requests about partitions go to their leaders, several partitions in one. Retriable errors (a moved leader, a broker
that is being restarted, a coordinator that still loads) are retried for `timeout_s` in all. Any other error is a
ClusterError of one line. Works with any broker that has Metadata v1 and ListOffsets v1. PLAINTEXT only. Not for use by
several threads at once. May be pickled; the copy opens its own connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError, ClientTimeout, ConnectionClosed
from klamm.client.routing import Leader, Node, Routing, metadata_request
from klamm.pipeline.errors import BadOption, ClusterError, UnknownTopic
from klamm.pipeline.ranges import NO_TOPIC_ID, TopicPartition
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm.protocol.messages.metadata import MetadataRequest

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
FIRST_CONTACT_S: Final = 10.0
"""The timeout for servers that were never reached: most likely the address is wrong."""
BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_SINCE: Final = 2  # ListOffsets


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a cluster. `topic_id` is zero if the brokers do not report it."""

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    is_internal: bool = False

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in self.partitions]


class Retries:
    """Waits of growing length between attempts, up to a deadline."""

    def __init__(
        self,
        timeout_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._deadline = monotonic() + timeout_s
        self._attempts = 0

    def again(self, reason: object) -> None:
        """Wait before the next attempt, or raise ClusterError with the reason."""
        if self._monotonic() >= self._deadline:
            raise ClusterError(f"{reason} (tried for {self._timeout_s:.0f} s)")
        self._sleep(BACKOFF_S[min(self._attempts, len(BACKOFF_S) - 1)])
        self._attempts += 1

    def progress(self) -> None:
        """Restart the timeout after a success."""
        self._deadline = self._monotonic() + self._timeout_s
        self._attempts = 0


class Cluster:
    """The brokers of a cluster and open connections to them."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "klamm-pipeline",
        timeout_s: float = TIMEOUT_S,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._bootstrap = parse_servers(bootstrap_servers)
        self._monotonic = monotonic
        self._sleep = sleep
        self._clients: dict[tuple[str, int], NodeClient] = {}
        self._nodes: dict[int, Node] = {}
        self._routing: Routing | None = None
        self._routed: set[str] = set()

    # -- topics and offsets

    @property
    def place(self) -> str:
        """Return the name of this cluster for messages."""
        return self.bootstrap_servers

    def topics(self, names: Iterable[str] | None = None, *, missing_ok: bool = False) -> dict[str, Topic]:
        """Return the topics of these names, or all, by name. Raises UnknownTopic for one that does not exist."""
        wanted = None if names is None else list(dict.fromkeys(names))
        if wanted == []:
            return {}
        response = self.metadata(wanted)
        found = {}
        for item in sorted(response.topics, key=lambda item: str(item.name)):
            code = error_code(item.error_code)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if not missing_ok:
                    raise UnknownTopic(f"topic {item.name} does not exist on {self.place}")
            elif code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise ClusterError(f"topic {item.name}: {code.name}, {code.default_message}")
            elif item.name is not None:
                numbers = tuple(sorted(one.partition_index for one in item.partitions))
                found[item.name] = Topic(item.name, bytes(item.topic_id), numbers, item.is_internal)
        return found

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        found = self._list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), READ_UNCOMMITTED)
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def latest(
        self, partitions: Iterable[TopicPartition], isolation: int = READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        """Return the last stable offsets, or (READ_UNCOMMITTED) the high watermarks."""
        found = self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP), isolation)
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], isolation: int = READ_COMMITTED
    ) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at or after each time; None if there is none."""
        return self._list_offsets(times_ms, isolation)

    def _list_offsets(self, times: Mapping[TopicPartition, int], isolation: int) -> dict[TopicPartition, int | None]:
        def ask(client: NodeClient, partitions: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError | None]:
            version = client.choose_version(ListOffsetsRequest)
            if isolation == READ_COMMITTED and version < ISOLATION_SINCE:
                raise ClusterError(f"{client.host}:{client.port} is too old for read_committed")
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=item.partition, timestamp=times[item]) for item in items
                    ],
                )
                for topic, items in by_topic(partitions).items()
            ]
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation if version >= ISOLATION_SINCE else 0,
                topics=topics,
                timeout_ms=int(self.timeout_s * 1000),
            )
            return {
                TopicPartition(topic.name, item.partition_index): kafka_error(item.error_code)
                or (None if item.offset < 0 else item.offset)
                for topic in client.request(request, version).topics
                for item in topic.partitions
            }

        return self.at_leaders(times, ask)

    # -- requests

    def at_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[NodeClient, list[TopicPartition]], dict[TopicPartition, T | KafkaError]],
    ) -> dict[TopicPartition, T]:
        """Ask each leader about its partitions; retry those with a retriable error."""
        found: dict[TopicPartition, T] = {}
        left = sorted(set(partitions))
        retries = self.retries()
        while left:
            failed: dict[TopicPartition, object] = {}
            for address, wanted in self._by_leader(left, failed).items():
                try:
                    answers = ask(self.client(*address), wanted)
                except (ConnectionClosed, ClientTimeout) as error:
                    self.drop(*address)
                    failed.update(dict.fromkeys(wanted, error))
                    continue
                except ClientError as error:
                    raise ClusterError(f"{address[0]}:{address[1]}: {error}") from None
                for partition, answer in answers.items():
                    if not isinstance(answer, KafkaError):
                        found[partition] = answer
                    elif answer.code.retriable:
                        failed[partition] = answer
                    else:
                        raise ClusterError(f"{partition}: {answer}")
            left = sorted(failed)
            if left:
                self.forget_leaders()
                retries.again(f"{left[0]}: {failed[left[0]]}")
        return found

    def leader(self, partition: TopicPartition) -> Leader:
        """Return the leader, from the cache. Raises KafkaError if there is none.

        Call `forget_leaders` after an error from the leader.
        """
        if self._routing is None or partition.topic not in self._routed:
            self._routed.add(partition.topic)
            self._routing = Routing(self.metadata(sorted(self._routed)))
        return self._routing.leader(partition.topic, partition.partition)

    def forget_leaders(self) -> None:
        """Clear the cache of leaders."""
        self._routing = None

    def metadata(self, topics: list[str] | None) -> Any:
        """Return a Metadata response of any broker: of some topics, all (None) or none."""
        response = self.ask(lambda version: metadata_request(topics, version), MetadataRequest)
        self._nodes = Routing(response).nodes
        return response

    def ask(self, request: Any, kind: type[Any] | None = None) -> Any:
        """Send to any broker that answers.

        `request` may be a function of the version; then `kind` is the class of the request.
        """
        first = not self._nodes
        retries = self.retries(min(FIRST_CONTACT_S, self.timeout_s) if first else None)
        while True:
            failed: ClientError | None = None
            for address in self._addresses():
                try:
                    client = self.client(*address)
                    version = client.choose_version(kind or type(request))
                    return client.request(request if kind is None else request(version), version)
                except (ConnectionClosed, ClientTimeout) as error:
                    self.drop(*address)
                    failed = error
                except ClientError as error:
                    raise ClusterError(f"{address[0]}:{address[1]}: {error}") from None
            retries.again(f"no broker answers at {self.bootstrap_servers}: {failed}")

    def retries(self, timeout_s: float | None = None) -> Retries:
        """Return the retries of one more operation."""
        return Retries(timeout_s or self.timeout_s, monotonic=self._monotonic, sleep=self._sleep)

    def client(self, host: str, port: int) -> NodeClient:
        """Return the connection to one broker, opened on first use."""
        client = self._clients.get((host, port))
        if client is None:
            client = NodeClient(host, port, client_id=self.client_id, timeout_s=self.timeout_s)
            self._clients[host, port] = client
        return client

    def drop(self, host: str, port: int) -> None:
        """Close a connection that failed; the next use opens another one."""
        if (client := self._clients.pop((host, port), None)) is not None:
            client.close()

    def close(self) -> None:
        for address in list(self._clients):
            self.drop(*address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Cluster], tuple[object, ...]]:
        return _unpickled, (type(self), self.bootstrap_servers, self.client_id, self.timeout_s)

    def _addresses(self) -> list[tuple[str, int]]:
        """Return open connections first, then the known brokers, then the bootstrap servers."""
        nodes = ((node.host, node.port) for node in self._nodes.values())
        return list(dict.fromkeys([*self._clients, *nodes, *self._bootstrap]))

    def _by_leader(
        self, partitions: list[TopicPartition], failed: dict[TopicPartition, object]
    ) -> dict[tuple[str, int], list[TopicPartition]]:
        found: dict[tuple[str, int], list[TopicPartition]] = {}
        self._routed.update(item.topic for item in partitions)
        for partition in partitions:
            try:
                leader = self.leader(partition)
            except KafkaError as error:
                if not error.code.retriable:
                    raise ClusterError(f"{partition}: {error}") from None
                failed[partition] = error
            else:
                found.setdefault((leader.host, leader.port), []).append(partition)
        return found


def _unpickled(cls: type[Cluster], bootstrap_servers: str, client_id: str, timeout_s: float) -> Cluster:
    return cls(bootstrap_servers, client_id=client_id, timeout_s=timeout_s)


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Parse "host:port,host:port". Raises BadOption."""
    found = []
    for item in text.split(","):
        host, separator, port = item.strip().rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadOption(f"kafka.bootstrap.servers has the form host:port,host:port, not {text or 'nothing'}")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic, as requests have them."""
    found: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition)
    return found


def error_code(number: int) -> ErrorCode:
    """Return the error code of a response; an unknown number is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def kafka_error(number: int, message: str | None = None) -> KafkaError | None:
    """Return the error of a response, or None for code 0."""
    return KafkaError(error_code(number), message or "") if number else None


__all__ = ["NO_TOPIC_ID", "READ_COMMITTED", "READ_UNCOMMITTED", "Cluster", "Retries", "Topic", "TopicPartition"]
