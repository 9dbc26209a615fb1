"""TxnOffsetCommit (28): v0-6. Stores the positions of a group within a transaction: they count when it commits.

The partition of ``__consumer_offsets`` must be part of the transaction: AddOffsetsToTxn has added it or, from v5 on
(KIP-890), this request does. v2 has the leader epoch. v3 has the committing member (KIP-447): a member that has lost
its partitions is refused, with ILLEGAL_GENERATION, also in a consumer group. v4 has TRANSACTION_ABORTABLE where older
versions have INVALID_TXN_STATE; v6 names topics by id. The partitions of a request are one batch of the log: all of
them are stored, or none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.broker.apis.offset_commit import refusal
from klamm.broker.coordinator.group.consumer.consumer_checks import check_commit
from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.runtime.coordinator_writer import TransactionalProducer
from klamm.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from klamm.protocol.errors import ErrorCode, InvalidGroupId, KafkaError
from klamm.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.coordinator.group.commits import Commit

ABORTABLE_FROM = 4
ADDS_PARTITION_FROM = 5
TOPIC_IDS_FROM = 6
NO_SEQUENCE = -1

Answers = list[TxnOffsetCommitResponsePartition]


async def handle(broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    response, commits, accepted = _sort(broker, request, context.api_version)
    if not commits:
        return response
    try:
        code = await _commit(broker, request, commits, context.api_version)
    except KafkaError as error:
        code = error.code
    for answer in accepted:
        answer.error_code = int(_as_producers_know(code, context.api_version))
    return response


def _sort(
    broker: Broker, request: TxnOffsetCommitRequest, version: int
) -> tuple[TxnOffsetCommitResponse, list[Commit], Answers]:
    """Return the response, with errors for refused partitions; the commits to store; and their entries in
    the response.
    """
    now_ms, limit = broker.clock.wall_ms(), broker.groups.metadata_max_bytes
    by_id = version >= TOPIC_IDS_FROM
    commits: list[Commit] = []
    accepted: Answers = []
    topics = []
    for topic in request.topics:
        found = broker.image.topics_by_id.get(topic.topic_id) if by_id else broker.image.topics.get(topic.name)
        answers: Answers = []
        for entry in topic.partitions:
            text = entry.committed_metadata or ""
            refused = refusal(found, entry.partition_index, text, limit, by_id=by_id)
            answer = TxnOffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=int(refused))
            answers.append(answer)
            if found is not None and not refused:
                committed = CommittedOffset(
                    entry.committed_offset, entry.committed_leader_epoch, text, now_ms, None, found.topic_id
                )
                commits.append((found.name, entry.partition_index, committed))
                accepted.append(answer)
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return TxnOffsetCommitResponse(topics=topics), commits, accepted


async def _commit(broker: Broker, request: TxnOffsetCommitRequest, commits: list[Commit], version: int) -> ErrorCode:
    if not request.group_id:
        raise InvalidGroupId("a group id must not be empty")
    groups = broker.groups
    groups.check(request.group_id)
    partition = groups.topic.partition_for(request.group_id)
    assert partition is not None, "the group is served here"
    verified = broker.transactions.add_or_verify_partition(
        partition,
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        NO_SEQUENCE,
        adds=version >= ADDS_PARTITION_FROM,
    )
    guard = await verified if isinstance(verified, asyncio.Future) else verified
    _check_member(broker, request, commits)
    producer = TransactionalProducer(request.producer_id, request.producer_epoch, guard)
    outcome = groups.commits.commit(request.group_id, commits, producer)
    return outcome if isinstance(outcome, ErrorCode) else await outcome


def _check_member(broker: Broker, request: TxnOffsetCommitRequest, commits: list[Commit]) -> None:
    """Raise an error unless the member may commit."""
    groups, epoch = broker.groups, request.generation_id_or_member_epoch
    group = groups.consumers.groups.get(request.group_id)
    if group is not None:
        partitions = [(committed.topic_id, index) for _, index, committed in commits]
        check_commit(group, request.member_id, epoch, None, partitions)
        return
    groups.classic.check_commit(
        request.group_id, request.member_id, request.group_instance_id, epoch, version=0, transactional=True
    )


def _as_producers_know(code: ErrorCode, version: int) -> ErrorCode:
    """Translate an error of the coordinators into one of TxnOffsetCommit."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.STALE_MEMBER_EPOCH:
        return ErrorCode.ILLEGAL_GENERATION
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


def error_response(request: TxnOffsetCommitRequest, error: KafkaError, version: int) -> TxnOffsetCommitResponse:
    """Return the same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=int(error.code))
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
