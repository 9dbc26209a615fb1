"""Consumer groups of a cluster: list them, read their committed offsets, and commit for a group without members.

Offsets of an open transaction count only when it has ended; `stable` waits for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.client.errors import ClientError
from klamm.pipeline.errors import ClusterError
from klamm.pipeline.kafka.cluster import Cluster, by_topic, error_code
from klamm.pipeline.kafka.coordinator import Coordinator, KeyType
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.list_groups import ListGroupsRequest
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

SEVERAL_GROUPS_SINCE: Final = 8
STABLE_SINCE: Final = 7
ALL_TOPICS_SINCE: Final = 2
LAST_FETCH_BY_NAME: Final = 9
LAST_COMMIT_BY_NAME: Final = 9
BUSY: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
)


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a group for a partition."""

    offset: int
    metadata: str


def list_groups(cluster: Cluster) -> list[str]:
    """Return the ids of all consumer groups, sorted. Raises ClusterError when a broker does not answer."""
    found = set()
    for node in cluster.metadata([]).brokers:
        try:
            response = cluster.client(node.host, node.port).request(ListGroupsRequest())
        except ClientError as error:
            cluster.drop(node.host, node.port)
            raise ClusterError(f"groups of {node.host}:{node.port}: {error}") from None
        if (code := error_code(response.error_code)) != ErrorCode.NONE:
            raise ClusterError(f"groups of {node.host}:{node.port}: {code.name}, {code.default_message}")
        found |= {item.group_id for item in response.groups if item.protocol_type in ("", "consumer")}
    return sorted(found)


def committed(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
) -> dict[TopicPartition, Committed]:
    """Return the committed offsets of a group, for some partitions or all (None). Those without one are left out."""
    wanted = None if partitions is None else by_topic(partitions)
    if wanted == {}:
        return {}

    def request(version: int) -> OffsetFetchRequest:
        if version >= SEVERAL_GROUPS_SINCE:
            rows = None if wanted is None else [_named(OffsetFetchRequestTopics, *item) for item in wanted.items()]
            return OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=rows)], require_stable=stable
            )
        old = None if wanted is None else [_named(OffsetFetchRequestTopic, *item) for item in wanted.items()]
        asked = OffsetFetchRequest(group_id=group, topics=old)
        if version >= STABLE_SINCE:
            asked.require_stable = stable
        return asked

    response = Coordinator(cluster, group, KeyType.GROUP).request(
        request,
        _fetch_codes,
        kind=OffsetFetchRequest,
        least=STABLE_SINCE if stable else ALL_TOPICS_SINCE,
        most=LAST_FETCH_BY_NAME,
    )
    for code in map(error_code, _fetch_codes(response)):
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND):
            raise ClusterError(f"offsets of group {group}: {code.name}, {code.default_message}")
    return {
        TopicPartition(topic.name, item.partition_index): Committed(item.committed_offset, item.metadata or "")
        for topic in _fetched(response).topics
        for item in topic.partitions
        if item.committed_offset >= 0
    }


def commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit for a group without members. If it has members, return False and do nothing."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=one.partition, committed_offset=offsets[one], committed_metadata=""
                )
                for one in items
            ],
        )
        for topic, items in by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(group_id=group, member_id="", topics=topics)
    response = Coordinator(cluster, group, KeyType.GROUP).request(request, _commit_codes, most=LAST_COMMIT_BY_NAME)
    codes = set(map(error_code, _commit_codes(response))) - {ErrorCode.NONE}
    for code in codes.difference(BUSY):
        raise ClusterError(f"offsets of group {group}: {code.name}, {code.default_message}")
    return not codes


def _named(kind: Any, topic: str, partitions: list[TopicPartition]) -> Any:
    return kind(name=topic, partition_indexes=[one.partition for one in partitions])


def _fetched(response: Any) -> Any:
    return response.groups[0] if response.groups else response


def _fetch_codes(response: Any) -> list[int]:
    found = _fetched(response)
    return [found.error_code, *(item.error_code for topic in found.topics for item in topic.partitions)]


def _commit_codes(response: Any) -> list[int]:
    return [item.error_code for topic in response.topics for item in topic.partitions]
