"""OffsetCommit (8): v0-10. Stores the positions of a group.

v0 writes to the nodes of the ZooKeeper era (`old_offsets`), newer versions to ``__consumer_offsets``. v1 has a commit
timestamp for each partition, v2-4 a retention time, v6 the leader epoch (KIP-320), v7 static members; v9 has
GROUP_ID_NOT_FOUND where older versions have ILLEGAL_GENERATION, v10 names topics by id. A commit of a member counts as
a heartbeat. The partitions of a request are one batch of the log: all of them are stored, or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group import old_offsets
from klamm.broker.coordinator.group.consumer.consumer_checks import check_commit
from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from klamm.protocol.wire import fits_string
from klamm.storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.coordinator.group.commits import Commit
    from klamm.broker.metadata.image import TopicImage

GENERATION_FROM = 1
TIMESTAMP_VERSION = 1
TOPIC_IDS_FROM = 10
NOT_GIVEN = -1

Answers = list[OffsetCommitResponsePartition]


def handle(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    version = context.api_version
    response, commits, accepted = _sort(broker, request, version)
    if not commits:
        return response
    if version < GENERATION_FROM:
        return _commit_old(broker, request, response, commits, accepted)
    groups = broker.groups
    try:
        groups.check(request.group_id)
        _check_member(broker, request, commits, version)
    except KafkaError as error:
        return _fail(response, accepted, error.code)
    outcome = groups.commits.commit(request.group_id, commits)
    if isinstance(outcome, asyncio.Future):
        return _after_flush(outcome, response, accepted)
    return _fail(response, accepted, outcome) if outcome else response


def _check_member(broker: Broker, request: OffsetCommitRequest, commits: list[Commit], version: int) -> None:
    """Raise an error unless the commit is allowed. In a classic group it counts as a heartbeat of the member."""
    groups, epoch = broker.groups, request.generation_id_or_member_epoch
    group = groups.consumers.groups.get(request.group_id)
    if group is not None:
        partitions = [(committed.topic_id, index) for _, index, committed in commits]
        check_commit(group, request.member_id, epoch, version, partitions)
        return
    groups.classic.check_commit(request.group_id, request.member_id, request.group_instance_id, epoch, version=version)
    groups.classic.commit_is_heartbeat(request.group_id, request.member_id, groups.now())


def _sort(
    broker: Broker, request: OffsetCommitRequest, version: int
) -> tuple[OffsetCommitResponse, list[Commit], Answers]:
    """Return the response, with errors for refused partitions; the commits to store; and their entries in
    the response.
    """
    now_ms = broker.clock.wall_ms()
    expires_ms = None
    if request.retention_time_ms != NOT_GIVEN:
        expires_ms = min(now_ms + request.retention_time_ms, LONG_MAX)
    limit = broker.groups.metadata_max_bytes
    commits: list[Commit] = []
    accepted: Answers = []
    topics = []
    for topic in request.topics:
        found = _find(broker, topic, version)
        answers: Answers = []
        for entry in topic.partitions:
            answer = OffsetCommitResponsePartition(partition_index=entry.partition_index)
            answers.append(answer)
            text = entry.committed_metadata or ""
            refused = refusal(found, entry.partition_index, text, limit, by_id=version >= TOPIC_IDS_FROM)
            if found is None or refused:
                answer.error_code = int(refused)
            else:
                timed = version == TIMESTAMP_VERSION and entry.commit_timestamp != NOT_GIVEN
                committed = CommittedOffset(
                    entry.committed_offset,
                    entry.committed_leader_epoch,
                    text,
                    entry.commit_timestamp if timed else now_ms,
                    expires_ms,
                    found.topic_id,
                )
                commits.append((found.name, entry.partition_index, committed))
                accepted.append(answer)
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return OffsetCommitResponse(topics=topics), commits, accepted


def refusal(topic: TopicImage | None, index: int, text: str, limit: int, *, by_id: bool) -> ErrorCode:
    """Return the reason why no client may commit the offset of a partition; NONE if there is none."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_too_large = len(text) > limit or not fits_string(text)
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE


def _find(broker: Broker, topic: OffsetCommitRequestTopic, version: int) -> TopicImage | None:
    if version >= TOPIC_IDS_FROM:
        return broker.image.topics_by_id.get(topic.topic_id)
    return broker.image.topics.get(topic.name)


def _fail(response: OffsetCommitResponse, answers: Answers, code: ErrorCode) -> OffsetCommitResponse:
    for answer in answers:
        answer.error_code = int(code)
    return response


async def _after_flush(
    outcome: asyncio.Future[ErrorCode], response: OffsetCommitResponse, accepted: Answers
) -> OffsetCommitResponse:
    return _fail(response, accepted, await outcome)


async def _commit_old(
    broker: Broker,
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    commits: list[Commit],
    accepted: Answers,
) -> OffsetCommitResponse:
    offsets = [(topic, partition, committed.offset) for topic, partition, committed in commits]
    try:
        await old_offsets.commit(broker.controller, request.group_id, offsets)
    except KafkaError as error:
        return _fail(response, accepted, error.code)
    return response


def error_response(request: OffsetCommitRequest, error: KafkaError, version: int) -> OffsetCommitResponse:
    """Return the same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=int(error.code))
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
