"""Rights of the APIs that read and write records: Produce, Fetch, ListOffsets, epochs and producers."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from klamm.broker.apis.fetch import Fetch
from klamm.broker.apis.rights.asker import REFUSED, Asker, refusal
from klamm.broker.apis.rights.guards import MANY, Guarded, after, ask_in_turns, name_of, split
from klamm.broker.apis.rights.table import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Each,
    Right,
)
from klamm.broker.controller.topics import check_name
from klamm.broker.network.response import CloseConnection
from klamm.protocol.errors import InvalidTopicException
from klamm.protocol.records.batch import ATTRIBUTES_POSITION, HEADER_BYTES

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.fetch.fetch_session import FetchedPartition
    from klamm.broker.partitions.partition import Partition
    from klamm.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
    from klamm.protocol.messages.fetch import FetchRequest
    from klamm.protocol.messages.list_offsets import ListOffsetsRequest
    from klamm.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
    from klamm.protocol.messages.produce import ProduceRequest

CONSUMER = -1
REPLICA_IN_STATE_FROM = 15
MAGIC_WITH_TRANSACTIONS = 2
MAGIC_POSITION, TRANSACTIONAL = 16, 0x10

IS_BROKER = Right(CLUSTER_ACTION, CLUSTER)
READ_TOPIC = Right(READ, TOPIC)
PRODUCED = Each(Right(WRITE, TOPIC), "topic_data", "responses")
EPOCHS = Each(Right(DESCRIBE, TOPIC), "topics", "topics", "topic")
PRODUCERS = Each(READ_TOPIC, "topics", "topics")


def produce(inner: Guarded, broker: Broker, context: RequestContext, request: ProduceRequest) -> Any:
    """Ask for WRITE on each topic, and on the transactional id if a batch is transactional. With acks=0 a refusal
    closes the connection."""
    ask = context.ask
    if _is_transactional(request):
        transactional_id = request.transactional_id
        if transactional_id is None or not ask.may(Right(WRITE, TRANSACTIONAL_ID), transactional_id):
            if request.acks == 0:
                raise CloseConnection("Produce with acks=0 is not authorized for the transactional id")
            raise refusal(TRANSACTIONAL_ID)
    if len(request.topic_data) > MANY:
        return _produce_many(inner, broker, context, request)
    return _produce(inner, broker, context, request)


async def _produce_many(inner: Guarded, broker: Broker, context: RequestContext, request: ProduceRequest) -> Any:
    names = {name for topic in request.topic_data if (name := name_of(broker, topic, "name")) is not None}
    await ask_in_turns(broker, context.ask, PRODUCED.right, list(names))
    response = _produce(inner, broker, context, request)
    return await response if inspect.isawaitable(response) else response


def _produce(inner: Guarded, broker: Broker, context: RequestContext, request: ProduceRequest) -> Any:
    ask = context.ask
    refused: list[str] = []

    def may(element: Any) -> bool:
        name = name_of(broker, element, "name")
        if name is None or ask.may(PRODUCED.right, name):
            return True
        refused.append(name)
        return False

    response = split(inner, broker, context, request, PRODUCED, may, REFUSED[TOPIC])
    if refused and request.acks == 0:
        return after(response, _close) if response is not None and not hasattr(response, "responses") else _close()
    return response


def _close(response: object = None) -> None:
    raise CloseConnection("Produce with acks=0 is not authorized for a topic")


def _is_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = cast("memoryview | None", data.records)
            if records is None or len(records) < HEADER_BYTES:
                continue
            if records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL and records[MAGIC_POSITION] >= MAGIC_WITH_TRANSACTIONS:
                return True
    return False


def fetch(inner: Guarded, broker: Broker, context: RequestContext, request: FetchRequest) -> Any:
    """Ask for READ on each topic, also on those of the session; for CLUSTER_ACTION if the request is a replica's."""
    return inner.handle(broker, context, request, partial(GuardedFetch, context.ask))  # type: ignore[call-arg]


class GuardedFetch(Fetch):
    """A fetch of the topics that its client may read. It asks once for each: a fetch that waits keeps its rights."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Asker, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ask = ask

    def _find(self, wanted: FetchedPartition) -> Partition:
        if not self._may_read(wanted):
            raise refusal(TOPIC)
        return super()._find(wanted)

    def _may_read(self, wanted: FetchedPartition) -> bool:
        if self._replica_id != CONSUMER:
            return self._ask.may(IS_BROKER)
        name = name_of(self._broker, wanted, "topic")
        return name is None or self._ask.may(READ_TOPIC, name)


def only_brokers_see_all(inner: Guarded, broker: Broker, context: RequestContext, request: ListOffsetsRequest) -> Any:
    """Ask for CLUSTER_ACTION where a request shows offsets above the high watermark: as a replica, or for debugging."""
    if request.replica_id != CONSUMER and not context.ask.may(IS_BROKER):
        raise refusal(TOPIC)
    return inner.handle(broker, context, request)


def offset_for_leader_epoch(
    inner: Guarded, broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Any:
    ask = context.ask
    if ask.may(IS_BROKER, quiet=True):
        return inner.handle(broker, context, request)

    def may(topic: Any) -> bool:
        return ask.may(EPOCHS.right, topic.topic)

    return split(inner, broker, context, request, EPOCHS, may, REFUSED[TOPIC])


def describe_producers(
    inner: Guarded, broker: Broker, context: RequestContext, request: DescribeProducersRequest
) -> Any:
    """Check names before rights, as Kafka does."""

    def may(topic: TopicRequest) -> bool:
        try:
            check_name(topic.name)
        except InvalidTopicException:
            return True
        return context.ask.may(PRODUCERS.right, topic.name)

    return split(inner, broker, context, request, PRODUCERS, may, REFUSED[TOPIC])
