"""CreatePartitions (37): v0-3. Adds partitions to topics, each topic independently (KIP-195).

``count`` is the new total. A topic that occurs twice gets INVALID_REQUEST, once. v2 is flexible; v3 changed only the
errors of quotas.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from klamm.broker.apis.common import mutation_count
from klamm.broker.controller.topics import NewPartitions
from klamm.protocol.errors import InvalidRequest, KafkaError
from klamm.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
STRICT_FROM = 3  # versions that refuse changes over the quota


async def handle(broker: Broker, context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    count = mutation_count(context, strict_from=STRICT_FROM)
    counts = Counter(topic.name for topic in request.topics)
    errors: dict[str, KafkaError | None] = {
        name: InvalidRequest(f"topic {name!r} is named more than once") for name, count in counts.items() if count > 1
    }
    wanted = [_new_partitions(topic) for topic in request.topics if topic.name not in errors]
    if wanted:
        outcomes = await broker.controller.create_partitions(wanted, request.validate_only, count)
        errors |= {new.name: error for new, error in zip(wanted, outcomes, strict=True)}
    return CreatePartitionsResponse(results=[_answer(name, errors[name]) for name in counts])


def error_response(request: CreatePartitionsRequest, error: KafkaError, version: int) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[_answer(name, error) for name in names])


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _answer(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name, error_message=None)
    return CreatePartitionsTopicResult(name=name, error_code=int(error.code), error_message=error.message)
